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

// IEEE half precision: 1 sign, 5 exponent and 10 mantissa bits. The bits move to where a float has
// them, and the exponent's bias goes from 15 to 127. A subnormal m * 2^-24 has no leading 1: it
// gets one, as 2^-14 + m * 2^-24, and loses it again by subtraction, which is exact. Three results
// and a choice, no branches: compilers make vector code of it.
inline float f16_to_float(std::uint16_t bits) {
  constexpr std::uint32_t kOne = 1 << 23;  // 1 in the exponent of a float
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t magnitude = (bits & 0x7FFFu) << 13;
  const std::uint32_t normal = magnitude + (127 - 15) * kOne;
  const float leading_one = std::bit_cast<float>(normal + kOne);
  const auto subnormal = std::bit_cast<std::uint32_t>(leading_one - 0x1p-14f);
  const std::uint32_t not_finite = magnitude | 255 * kOne;
  const std::uint32_t small_or_normal = magnitude < kOne ? subnormal : normal;
  return std::bit_cast<float>(sign | (magnitude < 31 * kOne ? small_or_normal : not_finite));
}

// Round to nearest, ties to even; from 65520 on, infinity. NaN stays NaN.
std::uint16_t float_to_f16(float value);

}  // namespace qwen
