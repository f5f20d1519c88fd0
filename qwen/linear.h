// y = x W^T for every storage format.
#pragma once

#include <span>
#include <vector>

#include "qwen/tensor.h"
#include "qwen/weights.h"

namespace qwen::plain {

// x [T, K], w [N, K] -> [T, N]: y[t, n] = sum over k of x[t, k] * w[n, k], in float32.
// With bf16 weights x is rounded to bf16 first, as the hardware's dot products take it.
Tensor2 linear(const Tensor2& x, const Weight& w);

}  // namespace qwen::plain

namespace qwen::fast {

// The same, in register tiles over all threads (linear_fast.cpp). The bits of a row of y depend on
// that row of x and on w alone: not on T, not on the number of threads.
Tensor2 linear(const Tensor2& x, const Weight& w);

// Several matrices that meet the same x: y[i] = linear(x, *ws[i]), to the bit. x is prepared once,
// and the rows of all matrices are one piece of work for the threads.
std::vector<Tensor2> products(const Tensor2& x, std::span<const Weight* const> ws);

// What it was compiled for: "AVX-512, bf16 dot product", …
const char* linear_kernel();

}  // namespace qwen::fast
