// y = x W^T in float32, from the formula to a register tile, one idea a step.
//
//   three_loops        one multiplication after the other
//   down_the_columns   the same ones in an order that W does not lie in
//   one_vector         kLanes of them at once, along K
//   rows_of_w          several rows of W at once: several sums in flight
//   tiles              several rows of x as well: each loaded number is used several times
//
// The steps that follow are in linear_fast.cpp: x in blocks that stay in the cache, all threads,
// any size, every storage format.
#pragma once

#include <functional>

#include "qwen/tensor.h"

namespace qwen::ladder {

// All: x [T, K], w [N, K] -> [T, N].
Tensor2 three_loops(const Tensor2& x, const Tensor2& w);
Tensor2 down_the_columns(const Tensor2& x, const Tensor2& w);

// These take whole vectors: K a multiple of 16.
Tensor2 one_vector(const Tensor2& x, const Tensor2& w);
Tensor2 rows_of_w(const Tensor2& x, const Tensor2& w);
Tensor2 tiles(const Tensor2& x, const Tensor2& w);

// Multiply-adds that one core does in a second when it waits for nothing.
double peak_multiply_adds();

// Seconds of the shortest of many runs: what else the machine does only ever adds to a run.
double shortest(const std::function<void()>& work);

}  // namespace qwen::ladder
