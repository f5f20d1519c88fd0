#include "qwen/dtype.h"

#include <array>
#include <cassert>
#include <cstring>
#include <stdexcept>

#include "qwen/blocks.h"

namespace qwen {
namespace {

// In the order of DType.
constexpr std::array<Format, 11> kFormats = {{
    {"f32", 1, 4},
    {"f16", 1, 2},
    {"bf16", 1, 2},
    {"q8_0", 32, 34},
    {"q4_0", 32, 18},
    {"q4_1", 32, 20},
    {"q5_0", 32, 22},
    {"q5_1", 32, 24},
    {"q4_k", 256, 144},
    {"q5_k", 256, 176},
    {"q6_k", 256, 210},
}};

// Number i of two bytes each, at any alignment.
std::uint16_t load_16(const std::byte* source, std::size_t i) {
  std::uint16_t bits;
  std::memcpy(&bits, source + 2 * i, sizeof bits);
  return bits;
}

void store_16(std::uint16_t bits, std::byte* out, std::size_t i) {
  std::memcpy(out + 2 * i, &bits, sizeof bits);
}

}  // namespace

const Format& format(DType dtype) {
  return kFormats[static_cast<std::size_t>(dtype)];
}

DType dtype_from_name(const std::string& name) {
  std::string known;
  for (std::size_t i = 0; i < kFormats.size(); ++i) {
    if (name == kFormats[i].name) return static_cast<DType>(i);
    known += (i ? ", " : "") + std::string(kFormats[i].name);
  }
  throw std::invalid_argument("unknown dtype \"" + name + "\", expected one of " + known);
}

std::size_t stored_bytes(DType dtype, std::size_t count) {
  const Format& f = format(dtype);
  assert(count % f.block_values == 0);
  return count / f.block_values * f.block_bytes;
}

void to_float(DType dtype, const std::byte* source, std::size_t count, float* out) {
  if (count == 0) return;
  switch (dtype) {
    case DType::F32:
      std::memcpy(out, source, count * sizeof(float));
      break;
    case DType::F16:
      for (std::size_t i = 0; i < count; ++i) out[i] = f16_to_float(load_16(source, i));
      break;
    case DType::BF16:
      for (std::size_t i = 0; i < count; ++i) out[i] = bf16_to_float(load_16(source, i));
      break;
    default:
      block_to_float(dtype, source, count, out);
  }
}

void from_float(const float* values, std::size_t count, DType dtype, std::byte* out) {
  if (count == 0) return;
  switch (dtype) {
    case DType::F32:
      std::memcpy(out, values, count * sizeof(float));
      break;
    case DType::F16:
      for (std::size_t i = 0; i < count; ++i) store_16(float_to_f16(values[i]), out, i);
      break;
    case DType::BF16:
      for (std::size_t i = 0; i < count; ++i) store_16(float_to_bf16(values[i]), out, i);
      break;
    default:
      throw std::invalid_argument("cannot convert to " + std::string(format(dtype).name) +
                                  ", expected f32, f16 or bf16");
  }
}

std::uint16_t float_to_f16(float value) {
  constexpr std::uint32_t kInfinity = 0x7F800000;
  constexpr std::uint32_t kOverflow = 0x477FF000;        // 65520, halfway past the largest half
  constexpr std::uint32_t kSmallestNormal = 0x38800000;  // 2^-14

  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = bits >> 16 & 0x8000;
  const auto magnitude = bits & 0x7FFFFFFF;
  std::uint32_t half;
  if (magnitude > kInfinity) {
    half = 0x7E00 | (magnitude >> 13 & 0x3FF);  // the quiet bit keeps it from becoming infinity
  } else if (magnitude >= kOverflow) {
    half = 0x7C00;
  } else if (magnitude < kSmallestNormal) {
    // The spacing of floats from 0.5 on is that of subnormal halves, 2^-24: adding 0.5 rounds.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000;
  } else {
    // As float_to_bf16, with 13 bits dropped, then the exponent's bias goes from 127 to 15.
    half = ((magnitude + 0xFFF + (magnitude >> 13 & 1)) >> 13) - (112 << 10);
  }
  return static_cast<std::uint16_t>(sign | half);
}

}  // namespace qwen
