// y = x W^T for every storage format.
#pragma once

#include <algorithm>
#include <array>
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

// Few rows of x wait for memory. They meet two to four rows of W at a time, and which rows those
// are is free: adjacent ones, or some far apart, each the beginning of a long stretch of W that is
// read straight on; and so is how far ahead it asks for them. Machines differ in what they like.
// The bits of a product are the same; linear_in_order is told which order to take.
enum class Reading { adjacent, apart, apart_ahead };
inline constexpr std::array kReadings{Reading::adjacent, Reading::apart, Reading::apart_ahead};
inline constexpr const char* kReadingNames[] = {"adjacent", "apart", "apart, ahead"};
Tensor2 linear_in_order(const Tensor2& x, const Weight& w, Reading reading);

// The others take the fastest one. It is measured, in some 30 ms, for each type when matrices of
// half a megabyte together first meet few rows, or when first asked for.
struct ReadingSpeeds {
  struct Sample {
    int rows;                                         // of x
    std::array<double, kReadings.size()> speed = {};  // bytes of W in a second
    Reading fastest() const { return kReadings[std::ranges::max_element(speed) - speed.begin()]; }
  };
  std::vector<Sample> samples;  // for one row, and for as many as the tiles of few rows take
  // That of the first sample with at least so many rows, or of the last.
  Reading fastest(int rows) const;
};
const ReadingSpeeds& reading_speeds(DType dtype);  // F32, F16 or BF16

// What it was compiled for: "AVX-512, bf16 dot product", …
const char* linear_kernel();

}  // namespace qwen::fast
