// The part `dtype`: the same model in every type its matrices can have.
#pragma once

#include "qwen/speed.h"

namespace qwen {

std::string dtype_part(Speed& speed);

}  // namespace qwen
