#include <array>
#include <cstring>

#include "qwen/embedding.h"
#include "tests/support.h"

using namespace qwen;

namespace {

// A table [5, 3] whose row n holds n, n + 0.25, n + 0.5; exact in every one of the types.
Weight table(DType dtype, std::vector<std::byte>& bytes) {
  std::array<float, 15> values;
  for (int n = 0; n < 5; ++n) {
    for (int d = 0; d < 3; ++d) values[3 * n + d] = static_cast<float>(n) + 0.25f * d;
  }
  bytes.resize(stored_bytes(dtype, values.size()));
  from_float(values.data(), values.size(), dtype, bytes.data());
  Weight w;
  w.dtype = dtype;
  w.rows = 5;
  w.cols = 3;
  w.data = bytes.data();
  w.name = "embed_tokens";
  return w;
}

}  // namespace

TEST_CASE("embed: gives the rows of the ids, in their order, whatever the type") {
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    std::vector<std::byte> bytes;
    const std::array ids = {4, 0, 4, 2};
    const Tensor2 x = embed(table(dtype, bytes), ids);
    const Tensor2 expected = {{4, 4.25, 4.5}, {0, 0.25, 0.5}, {4, 4.25, 4.5}, {2, 2.25, 2.5}};
    check_same_bits(format(dtype).name, x, expected);
  }
}

TEST_CASE("embed: no ids give no rows") {
  std::vector<std::byte> bytes;
  const Tensor2 x = embed(table(DType::F32, bytes), {});
  CHECK(dim(x, 0) == 0);
  CHECK(dim(x, 1) == 3);
}

TEST_CASE("embed: an id without a row is named with its position") {
  std::vector<std::byte> bytes;
  const Weight w = table(DType::F32, bytes);
  const std::array high = {1, 5};
  const std::array low = {-1};
  check_throws_with([&] { embed(w, high); },
                    "[embed] id 5 at position 1, expected 0 to 4, the rows of embed_tokens");
  check_throws_with([&] { embed(w, low); }, "[embed] id -1 at position 0");
}
