// The two tables of operators that run the model; check.h and profile.h make others out of them.
#pragma once

#include "qwen/ops.h"

namespace qwen {

// The loops of the book. Slow, short, and what everything else is compared with.
Ops plain_ops();

// The vectorised kernels, on all threads: what the programs use.
Ops fast_ops();

}  // namespace qwen
