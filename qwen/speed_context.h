// The part `context`: what a token costs after a long text, and what the text leaves behind.
#pragma once

#include "qwen/speed.h"

namespace qwen {

// 0, 1k, 4k, 16k, 32k tokens, as far as the model's context and a quarter of the memory allow.
std::vector<int> contexts_to_try(const Config& config, int steps, std::size_t free_memory);

std::string context_part(Speed& speed);

}  // namespace qwen
