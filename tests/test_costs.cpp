#include "qwen/costs.h"
#include "qwen/random_model.h"
#include "tests/support.h"

using namespace qwen;

namespace {

// Elements of all tensors whose name contains one of the parts.
double elements(const RandomModel& random, bool matrices_only) {
  double sum = 0;
  for (const StoredTensor& tensor : random.tensors) {
    if (tensor.name.starts_with("mtp.")) continue;
    if (matrices_only && tensor.shape.size() != 2) continue;
    double count = 1;
    for (const std::size_t size : tensor.shape) count *= static_cast<double>(size);
    sum += count;
  }
  return sum;
}

}  // namespace

TEST_CASE("costs: the parameters of Qwen3.5-0.8B and SmolLM2-135M are the published ones") {
  CHECK(parameter_count(named_shape("qwen3.5-0.8b")) == 752'393'024);
  CHECK(parameter_count(named_shape("smollm2-135m")) == 134'515'008);
}

TEST_CASE("costs: parameters and weight bytes are those of the tensors") {
  for (const bool tied : {true, false}) {
    Config config = named_shape("tiny");
    config.tie_word_embeddings = tied;
    const RandomModel random = random_model(config, DType::F16);
    CHECK(parameter_count(config) == elements(random, false));
    // A token multiplies with every matrix once, and with the table as a row when it is no head.
    const double table = tied ? 0 : static_cast<double>(config.vocab_size) * config.hidden_size;
    CHECK(forward_cost(config, DType::F16, 1, 0).weight_bytes ==
          2 * (elements(random, true) - table));
  }
}

TEST_CASE("costs: a token of Qwen3.5-0.8B reads its weights, 18 MiB of S twice, and its cache") {
  const Config config = named_shape("qwen3.5-0.8b");
  const Cost cost = forward_cost(config, DType::BF16, 1, 203);
  CHECK(cost.weight_bytes == doctest::Approx(1.505e9).epsilon(0.001));
  const double S = 18.0 * (1 << 20), tails = 18.0 * 6144 * 3 * 4;
  const double kv = 6.0 * 204 * 2 * 2 * 256 * 4;
  CHECK(cost.state_bytes == 2 * S + 2 * tails + kv);
  CHECK(forward_cost(config, DType::F32, 1, 203).weight_bytes == 2 * cost.weight_bytes);
  CHECK(cost.linear_operations == cost.weight_bytes);  // two operations for two bytes
}

TEST_CASE("costs: a prompt multiplies with the head once, and every query with the keys it sees") {
  const Config config = named_shape("smollm2-135m");
  const Cost one = forward_cost(config, DType::F32, 1, 0),
             two = forward_cost(config, DType::F32, 2, 0);
  const double head = 2.0 * 49152 * 576;
  CHECK(two.linear_operations == 2 * one.linear_operations - head);
  CHECK(two.other_operations == 3 * one.other_operations);  // 1 + 2 keys
  CHECK(forward_cost(config, DType::F32, 1, 1).other_operations == 2 * one.other_operations);
}

TEST_CASE("costs: the delta rule takes 4 Dk Dv, its chunks 3 Dk Dv and what a chunk has inside") {
  CHECK(recurrent_multiply_adds(3, 5) == 60);
  // A chunk of one token: recall and read, q k and k k, one weight times one difference, write.
  CHECK(chunked_multiply_adds(3, 5, 1) == 2 * 15 + 2 * 3 + 5 + 15 + 15);
  CHECK(chunked_multiply_adds(128, 128, 64) == doctest::Approx(4.758 * 128 * 128).epsilon(0.001));
}
