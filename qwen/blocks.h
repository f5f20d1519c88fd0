// The block formats of GGUF files, and the plain conversion of each to float.
//
// A row is cut into blocks of 32 numbers (Q8_0 … Q5_1) or 256 (the K formats). A block stores each
// number as a small integer q, and the scale all of them share as a half-precision float:
//
//   around zero (Q8_0, Q4_0, Q5_0, Q6_K)   x = d * q              q signed
//   from a minimum up (Q4_1, Q5_1)         x = d * q + m          q unsigned
//   (Q4_K, Q5_K)                           x = d * q - m          q unsigned
//
// In a K format, d and m differ between the 16 or 32 numbers of a sub-block: they are themselves
// small integers times a scale of the block.
#pragma once

#include <cstddef>

#include "qwen/dtype.h"

namespace qwen {

// source [count] in a block format -> out [count]. Any alignment; count is a multiple of the
// format's block. Gives the very floats of dequantize in the Python package gguf.
void block_to_float(DType dtype, const std::byte* source, std::size_t count, float* out);

}  // namespace qwen
