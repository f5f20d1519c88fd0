// How numbers are stored in checkpoints, and the plain conversion of each format to float.
//
// Three formats hold one number per element. The others are block formats (GGUF): a row is cut
// into blocks of 32 or 256 numbers, each block a few small integers and the scale they share.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

namespace qwen {

enum class DType { F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K };

struct Format {
  const char* name;  // as it is printed and as --dtype takes it: "f32", "bf16", "q4_k"
  int block_values;  // numbers in a block; 1 where each stands alone
  int block_bytes;   // bytes of a block
};

const Format& format(DType dtype);
DType dtype_from_name(const std::string& name);  // std::invalid_argument for an unknown one

// Bytes of `count` numbers; count is a multiple of block_values.
std::size_t stored_bytes(DType dtype, std::size_t count);

// source [count] in the given format -> out [count]. Any alignment of source.
void to_float(DType dtype, const std::byte* source, std::size_t count, float* out);

// values [count] -> out, rounded to nearest even; dtype is F32, F16 or BF16.
void from_float(const float* values, std::size_t count, DType dtype, std::byte* out);

// bfloat16 is the upper half of a float: 1 sign, 8 exponent and 7 mantissa bits.
inline float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Round to nearest, ties to even, in integers: adding just under half of the dropped part, plus
// the lowest kept bit, carries exactly when rounding goes up. Subnormals need no special case; a
// NaN does: 0x7F800001 would be rounded to infinity, 0x7FFFFFFF carry into the sign.
inline std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<std::uint16_t>(bits >> 16 | 0x0040);
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// IEEE half precision: 1 sign, 5 exponent and 10 mantissa bits. Shifted to where a float has them,
// they spell the value times 2^-112, the difference of the two exponents' biases (15 and 127); the
// product with 2^112 is exact, for subnormals too. Infinity and NaN need the largest exponent.
inline float f16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t magnitude = (bits & 0x7FFFu) << 13;
  const auto finite = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  const bool is_finite = magnitude < 0x1Fu << 23;
  return std::bit_cast<float>(sign | (is_finite ? finite : magnitude | 0x7F800000u));
}

// Round to nearest, ties to even; from 65520 on, infinity. NaN stays NaN.
std::uint16_t float_to_f16(float value);

}  // namespace qwen
