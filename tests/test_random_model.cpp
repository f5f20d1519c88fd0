#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>

#include "qwen/load.h"
#include "qwen/parallel.h"
#include "qwen/random_model.h"
#include "qwen/save.h"
#include "qwen/tables.h"
#include "tests/support.h"

using namespace qwen;

namespace {

Tensor2 logits(const Model& model) {
  State state = empty_state(model.config);
  const std::vector<int> ids = {3, 141, 59, 26, 5, 358, 97};
  return forward(model, fast_ops(), ids, state);
}

std::vector<float> values(const StoredTensor& tensor) {
  std::size_t count = 1;
  for (const std::size_t size : tensor.shape) count *= size;
  std::vector<float> floats(count);
  to_float(tensor.dtype, tensor.data, count, floats.data());
  return floats;
}

const StoredTensor& tensor(const RandomModel& random, const std::string& name) {
  return *std::find_if(random.tensors.begin(), random.tensors.end(),
                       [&](const StoredTensor& t) { return t.name == name; });
}

double mean(const std::vector<float>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

double deviation(const std::vector<float>& x) {
  double sum = 0;
  for (const float value : x) sum += (value - mean(x)) * (value - mean(x));
  return std::sqrt(sum / static_cast<double>(x.size()));
}

}  // namespace

TEST_CASE("random_model: written and loaded again it gives the same logits, bit for bit") {
  const TempDir folder;
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    const std::string path = folder.path() + "/" + format(dtype).name;
    const RandomModel random = random_model(named_shape("tiny"), dtype, 7);
    save_checkpoint(random.model.config, random.tensors, path);
    const Model loaded = load_model(path);
    CHECK(loaded.remarks.empty());
    CHECK(loaded.embed_tokens.dtype == dtype);
    check_same_bits("logits", logits(loaded), logits(random.model));
  }
}

TEST_CASE("random_model: a checkpoint keeps every key of the config") {
  const TempDir folder;
  for (const std::string& name : shape_names()) {
    const Config written = named_shape(name);
    save_checkpoint(written, {}, folder.path() + "/" + name);
    const Config c = read_config(folder.path() + "/" + name);
    CHECK(c.model_type == written.model_type);
    CHECK(c.vocab_size == written.vocab_size);
    CHECK(c.hidden_size == written.hidden_size);
    CHECK(c.intermediate_size == written.intermediate_size);
    CHECK(c.rms_norm_eps == written.rms_norm_eps);
    CHECK(c.tie_word_embeddings == written.tie_word_embeddings);
    CHECK(c.max_position_embeddings == written.max_position_embeddings);
    CHECK(c.eos_token_id == written.eos_token_id);
    CHECK(c.num_attention_heads == written.num_attention_heads);
    CHECK(c.num_key_value_heads == written.num_key_value_heads);
    CHECK(c.head_dim == written.head_dim);
    CHECK(c.rope_theta == written.rope_theta);
    CHECK(rotary_dim(c) == rotary_dim(written));
    CHECK(c.linear_num_key_heads == written.linear_num_key_heads);
    CHECK(c.linear_num_value_heads == written.linear_num_value_heads);
    CHECK(c.linear_key_head_dim == written.linear_key_head_dim);
    CHECK(c.linear_value_head_dim == written.linear_value_head_dim);
    CHECK(c.linear_conv_kernel_dim == written.linear_conv_kernel_dim);
    CHECK(c.layer_types == written.layer_types);
    CHECK(c.mtp_num_hidden_layers == written.mtp_num_hidden_layers);
    CHECK(c.remarks.empty());
  }
}

TEST_CASE("random_model: matrices have variance 1 / cols, norms are near 1") {
  const RandomModel random = random_model(named_shape("tiny"), DType::F32);
  const std::vector<float> table = values(tensor(random, "model.embed_tokens.weight"));
  // 519 * 68 numbers: the mean of so many is within 5 / sqrt(35292) = 0.027 deviations of 0.
  CHECK(deviation(table) * std::sqrt(68.0) == doctest::Approx(1).epsilon(0.02));
  CHECK(std::abs(mean(table)) * std::sqrt(68.0) < 0.027);
  const auto [least, most] = std::minmax_element(table.begin(), table.end());
  CHECK(*most * std::sqrt(68.0) > 3);  // tails, both of them
  CHECK(*least * std::sqrt(68.0) < -3);

  const Tensor1& norm = random.model.norm;
  CHECK(std::abs(mean({norm.begin(), norm.end()}) - 1) < 0.1);
  CHECK(std::abs(mean(values(tensor(random, "model.norm.weight")))) < 0.1);  // stored around 0
}

TEST_CASE("random_model: heads of the delta rule keep from 0.5 to 0.9995 of S") {
  Config config = named_shape("tiny");
  config.linear_num_value_heads = 32;
  const RandomModel random = random_model(config, DType::BF16);
  const auto& deltanet = std::get<DeltaNet>(random.model.layers[0].mixer);
  float least = 1, most = 0;
  for (int h = 0; h < 32; ++h) {
    const float kept = std::exp(deltanet.A(h) * std::log1p(std::exp(deltanet.dt_bias(h))));
    least = std::min(least, kept);
    most = std::max(most, kept);
  }
  CHECK(least > 0.49);  // rounding A_log to bf16 moves the rate by up to 2 %
  CHECK(least < 0.6);
  CHECK(most > 0.999);
  CHECK(most < 0.9996);
}

TEST_CASE(
    "random_model: dtypes differ by rounding alone, threads by nothing, seeds by everything") {
  const Config config = named_shape("tiny");
  const RandomModel f32 = random_model(config, DType::F32, 3);
  const RandomModel bf16 = random_model(config, DType::BF16, 3);
  const RandomModel other = random_model(config, DType::F32, 4);
  const int threads = thread_count();
  set_thread_count(3);
  const RandomModel again = random_model(config, DType::F32, 3);
  set_thread_count(threads);
  REQUIRE(f32.tensors.size() == bf16.tensors.size());
  for (std::size_t i = 0; i < f32.tensors.size(); ++i) {
    CAPTURE(f32.tensors[i].name);
    std::vector<float> x = values(f32.tensors[i]);
    CHECK(x == values(again.tensors[i]));
    if (f32.tensors[i].name.find("A_log") == std::string::npos) {
      CHECK(x != values(other.tensors[i]));
    }
    for (float& value : x) value = bf16_to_float(float_to_bf16(value));
    CHECK(x == values(bf16.tensors[i]));
  }
}

TEST_CASE("random_model: an unknown shape is named beside those there are") {
  check_throws_with([] { named_shape("qwen4"); },
                    "no shape is called \"qwen4\"; there are qwen3.5-0.8b, smollm2-135m, tiny");
}

TEST_CASE("save: a folder that exists is left alone") {
  const TempDir folder;
  folder.write("model.safetensors", "precious");
  check_throws_with([&] { save_checkpoint(named_shape("tiny"), {}, folder.path()); },
                    "it exists already; remove it or choose another name");
  CHECK(std::filesystem::file_size(folder.path() + "/model.safetensors") == 8);
}

TEST_CASE("save: what cannot be written leaves nothing behind") {
  const TempDir folder;
  const std::string file = folder.write("file", "");
  check_throws_with([&] { save_checkpoint(named_shape("tiny"), {}, file + "/out"); },
                    "out: cannot be written: Not a directory");
  CHECK(!std::filesystem::exists(folder.path() + "/out"));
}
