#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "qwen/dtype.h"
#include "tests/support.h"

using namespace qwen;

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

float float_of(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

// The value of a half by its definition: 10 bits of mantissa, an exponent biased by 15.
double value_of_f16(int bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

// `values` in `dtype` and back to float, stored `shift` bytes past an aligned address.
std::vector<float> round_trip(const std::vector<float>& values, DType dtype, int shift) {
  std::vector<std::byte> memory(stored_bytes(dtype, values.size()) + 8);
  from_float(values.data(), values.size(), dtype, memory.data() + shift);
  std::vector<float> result(values.size());
  to_float(dtype, memory.data() + shift, values.size(), result.data());
  return result;
}

}  // namespace

TEST_CASE("dtype: names lead to formats and back") {
  for (const char* name :
       {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k"}) {
    CHECK(std::string(format(dtype_from_name(name)).name) == name);
  }
  check_throws_with([] { dtype_from_name("f8"); },
                    "unknown dtype \"f8\", expected one of f32, f16, bf16, q8_0");
}

TEST_CASE("dtype: bytes are counted in whole blocks") {
  CHECK(stored_bytes(DType::F32, 5) == 20);
  CHECK(stored_bytes(DType::BF16, 5) == 10);
  CHECK(stored_bytes(DType::Q8_0, 64) == 68);
  CHECK(stored_bytes(DType::Q6_K, 512) == 420);
  CHECK(stored_bytes(DType::F16, 0) == 0);
}

TEST_CASE("dtype: float to bf16 rounds to nearest even, in every range") {
  CHECK(float_to_bf16(1.0f) == 0x3F80);
  CHECK(float_to_bf16(float_of(0x3F808000)) == 0x3F80);     // halfway, down to the even one
  CHECK(float_to_bf16(float_of(0x3F818000)) == 0x3F82);     // halfway, up to the even one
  CHECK(float_to_bf16(float_of(0x7F7FFFFF)) == 0x7F80);     // the largest float becomes infinity
  CHECK(float_to_bf16(std::ldexp(1.0f, -127)) == 0x0040);   // subnormal: no flush to zero
  CHECK(float_to_bf16(-std::ldexp(1.0f, -133)) == 0x8001);  // the smallest of bf16
  CHECK(float_to_bf16(-0.0f) == 0x8000);
  CHECK(float_to_bf16(-kInfinity) == 0xFF80);
}

TEST_CASE("dtype: NaN stays NaN, with its sign, even where only dropped bits are set") {
  for (const std::uint32_t bits : {0x7F800001u, 0xFF800001u, 0x7FFFFFFFu, 0x7FC00000u}) {
    const float nan = float_of(bits);
    CHECK(std::isnan(bf16_to_float(float_to_bf16(nan))));
    CHECK(std::isnan(f16_to_float(float_to_f16(nan))));
    CHECK((float_to_bf16(nan) >> 15) == (bits >> 31));
    CHECK((float_to_f16(nan) >> 15) == (bits >> 31));
  }
  CHECK(float_to_bf16(float_of(0x7F800001)) == 0x7FC0);
}

TEST_CASE("dtype: floats are rounded to 16 bits as torch rounds them") {
  const Goldens goldens = load_goldens("formats.safetensors");
  const Tensor1 x = goldens.tensor<1>("float");
  const std::vector<int> bf16 = goldens.ints("bf16"), f16 = goldens.ints("f16");
  int different_bf16 = 0, different_f16 = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    different_bf16 += float_to_bf16(x(i)) != static_cast<std::uint16_t>(bf16[i]);
    different_f16 += float_to_f16(x(i)) != static_cast<std::uint16_t>(f16[i]);
  }
  CHECK(x.size() > 8000);
  CHECK(different_bf16 == 0);
  CHECK(different_f16 == 0);
}

TEST_CASE("dtype: all 65536 halves have the value of their definition and come back") {
  int wrong = 0;
  for (int bits = 0; bits < 0x10000; ++bits) {
    const float value = f16_to_float(static_cast<std::uint16_t>(bits));
    if ((bits & 0x7C00) == 0x7C00) {
      const bool is_nan = (bits & 0x3FF) != 0;
      wrong += is_nan ? !std::isnan(value) : value != (bits & 0x8000 ? -kInfinity : kInfinity);
    } else {
      wrong += value != value_of_f16(bits) || std::signbit(value) != (bits >= 0x8000) ||
               float_to_f16(value) != bits;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("dtype: all finite bf16 come back") {
  int wrong = 0;
  for (int bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if (!std::isnan(bf16_to_float(half))) wrong += float_to_bf16(bf16_to_float(half)) != half;
  }
  CHECK(wrong == 0);
}

TEST_CASE("dtype: arrays are converted at any alignment, whatever their length") {
  std::vector<float> values;
  for (int i = 0; i < 37; ++i) values.push_back(static_cast<float>(i - 18) / 8);  // exact in all
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    for (int shift = 0; shift < 5; ++shift) {
      CHECK(round_trip(values, dtype, shift) == values);
      CHECK(round_trip({}, dtype, shift).empty());
    }
  }
}

TEST_CASE("dtype: an array and its elements one by one have the same bits") {
  const std::vector<float> values = {kNaN,    kInfinity, 1e-40f, -0.0f,    65519.0f, 65520.0f,
                                     3.4e38f, 1e-7f,     -1e-8f, 0.33333f, 1e5f};
  for (const DType dtype : {DType::F16, DType::BF16}) {
    const std::vector<float> array = round_trip(values, dtype, 1);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float alone = dtype == DType::F16 ? f16_to_float(float_to_f16(values[i]))
                                              : bf16_to_float(float_to_bf16(values[i]));
      CHECK(std::bit_cast<std::uint32_t>(array[i]) == std::bit_cast<std::uint32_t>(alone));
    }
  }
}

TEST_CASE("dtype: floats are not converted to block formats") {
  check_throws_with([] { round_trip(std::vector<float>(32), DType::Q8_0, 0); },
                    "cannot convert to q8_0, expected f32, f16 or bf16");
}
