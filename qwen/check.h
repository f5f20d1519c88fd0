// Two tables at once: every operator runs beside its plain version, and the first that disagrees is
// named.
#pragma once

#include "qwen/ops.h"

namespace qwen {

// A table that computes with `ops` and compares each result with `oracle`'s on the same input,
// state included. What is handed on is the result of `ops`.
// std::runtime_error at the first disagreement: "layer 3, rope: row 5, column 17 is 0.25, the plain
// version gives 0.31 (they may differ by 1.2e-06)".
Ops checked_ops(const Ops& ops, const Ops& oracle);

}  // namespace qwen
