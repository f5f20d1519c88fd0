#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "qwen/blocks.h"
#include "tests/support.h"

using namespace qwen;

namespace {

std::span<const std::byte> bytes_of(const Goldens& goldens, const std::string& name) {
  for (const auto& entry : goldens.file.entries) {
    if (entry.name == name) return {goldens.file.data + entry.begin, entry.end - entry.begin};
  }
  FAIL("no tensor " << name);
  return {};
}

std::vector<float> floats(DType dtype, const std::byte* source, std::size_t count) {
  std::vector<float> values(count);
  block_to_float(dtype, source, count, values.data());
  return values;
}

// Same bits; one NaN is as good as another.
bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

}  // namespace

TEST_CASE("blocks: a block of Q4_0 read by hand") {
  std::array<std::uint8_t, 18> block{0x00, 0x38};  // d = 0.5
  block[2] = 0xF0;                                 // number 0 is 0 - 8, number 16 is 15 - 8
  block[17] = 0x08;                                // number 15 is 8 - 8, number 31 is 0 - 8
  const auto x = floats(DType::Q4_0, reinterpret_cast<const std::byte*>(block.data()), 32);
  CHECK(x[0] == -4.0f);
  CHECK(x[16] == 3.5f);
  CHECK(x[15] == 0.0f);
  CHECK(x[31] == -4.0f);
}

TEST_CASE("blocks: every format gives the floats of the Python package gguf") {
  const Goldens goldens = load_goldens("blocks.safetensors");
  for (const DType dtype : {DType::Q8_0, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1,
                            DType::Q4_K, DType::Q5_K, DType::Q6_K}) {
    const std::string name = format(dtype).name;
    CAPTURE(name);
    const auto bytes = bytes_of(goldens, name + ".bytes");
    const auto expected = goldens.tensor<2>(name + ".floats");
    REQUIRE(bytes.size() == stored_bytes(dtype, expected.size()));
    const auto actual = floats(dtype, bytes.data(), expected.size());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) wrong += !same(actual[i], expected.data()[i]);
    CHECK(wrong == 0);
  }
}

TEST_CASE("blocks: the bytes may start anywhere") {
  const Goldens goldens = load_goldens("blocks.safetensors");
  const auto bytes = bytes_of(goldens, "q6_k.bytes");
  const auto expected = floats(DType::Q6_K, bytes.data(), 256);
  for (std::size_t shift = 1; shift < 4; ++shift) {
    std::vector<std::byte> moved(shift, std::byte{0});
    moved.insert(moved.end(), bytes.data(), bytes.data() + 210);
    const auto actual = floats(DType::Q6_K, moved.data() + shift, 256);
    for (int i = 0; i < 256; ++i) CHECK(same(actual[i], expected[i]));
  }
}
