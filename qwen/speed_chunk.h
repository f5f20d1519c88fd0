// The part `chunk`: one layer's delta rule token by token, in blocks of columns, and in chunks.
#pragma once

#include "qwen/speed.h"

namespace qwen {

std::string chunk_part(Speed& speed);

}  // namespace qwen
