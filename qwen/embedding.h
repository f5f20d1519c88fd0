// From token ids to rows of the embedding table, and back: the same rows as the head.
#pragma once

#include <span>

#include "qwen/tensor.h"
#include "qwen/weights.h"

namespace qwen {

// table [vocab_size, hidden_size], ids [T] -> [T, hidden_size] as float32.
// std::invalid_argument naming the position for an id outside 0 … vocab_size - 1.
Tensor2 embed(const Weight& table, std::span<const int> ids);

}  // namespace qwen
