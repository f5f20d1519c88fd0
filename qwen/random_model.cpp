#include "qwen/random_model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "qwen/load.h"
#include "qwen/parallel.h"

namespace qwen {
namespace {

// ---- shapes ----

// What Qwen3.5 models have in common: every fourth layer is full attention.
Config qwen35_shape(int num_hidden_layers) {
  Config c;
  c.model_type = "qwen3_5_text";
  c.num_hidden_layers = num_hidden_layers;
  c.rms_norm_eps = 1e-6f;
  c.rope_theta = 1e7;
  c.linear_conv_kernel_dim = 4;
  c.mtp_num_hidden_layers = 1;
  c.tie_word_embeddings = c.norm_is_zero_centred = c.qk_norm = c.attn_output_gate = true;
  for (int i = 0; i < num_hidden_layers; ++i) {
    c.layer_types.push_back(i % 4 == 3 ? LayerType::full_attention : LayerType::linear_attention);
  }
  return c;
}

Config qwen35_08b() {
  Config c = qwen35_shape(24);
  c.vocab_size = 248320;
  c.hidden_size = 1024;
  c.intermediate_size = 3584;
  c.max_position_embeddings = 262144;
  c.eos_token_id = {248044, 248046};
  c.num_attention_heads = 8;
  c.num_key_value_heads = 2;
  c.head_dim = 256;
  c.partial_rotary_factor = 0.25;
  c.linear_num_key_heads = c.linear_num_value_heads = 16;
  c.linear_key_head_dim = c.linear_value_head_dim = 128;
  return c;
}

Config tiny() {
  Config c = qwen35_shape(4);
  c.vocab_size = 519;
  c.hidden_size = 68;
  c.intermediate_size = 150;
  c.max_position_embeddings = 4096;
  c.eos_token_id = {1};
  c.num_attention_heads = 6;
  c.num_key_value_heads = 3;
  c.head_dim = 20;
  c.partial_rotary_factor = 0.6;
  c.linear_num_key_heads = 2;
  c.linear_num_value_heads = 4;
  c.linear_key_head_dim = 14;
  c.linear_value_head_dim = 18;
  return c;
}

Config smollm2_135m() {
  Config c;
  c.model_type = "llama";
  c.vocab_size = 49152;
  c.hidden_size = 576;
  c.intermediate_size = 1536;
  c.num_hidden_layers = 30;
  c.rms_norm_eps = 1e-5f;
  c.tie_word_embeddings = true;
  c.max_position_embeddings = 8192;
  c.eos_token_id = {2};
  c.num_attention_heads = 9;
  c.num_key_value_heads = 3;
  c.head_dim = 64;
  c.rope_theta = 100000;
  c.layer_types.assign(30, LayerType::full_attention);
  return c;
}

struct NamedShape {
  const char* name;
  Config (*config)();
};
constexpr NamedShape kShapes[] = {
    {"qwen3.5-0.8b", qwen35_08b}, {"smollm2-135m", smollm2_135m}, {"tiny", tiny}};

// ---- random numbers ----

// 64 bits that look random, from a counter: any number can be had without those before it, so
// threads need not wait for each other.
constexpr std::uint64_t scramble(std::uint64_t x) {
  x *= 0x9E3779B97F4A7C15;
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93;
  x ^= x >> 32;
  return x;
}

// The sum of four numbers of 16 bits each is nearly normal: a bell from -3.5 to 3.5 standard
// deviations, brought to mean 0 and deviation 1.
float bell(std::uint64_t bits) {
  const std::uint64_t pairs = (bits & 0x0000FFFF0000FFFF) + (bits >> 16 & 0x0000FFFF0000FFFF);
  const auto sum = static_cast<std::int32_t>((pairs & 0x1FFFF) + (pairs >> 32));
  constexpr float kMean = 2 * 65535, kDeviation = 37837.23f;  // 65536 / sqrt(3)
  return (static_cast<float>(sum) - kMean) / kDeviation;
}

// A stream of its own for every tensor.
std::uint64_t stream(const std::string& name, std::uint64_t seed) {
  std::uint64_t key = seed;
  for (const char c : name) key = scramble(key ^ static_cast<unsigned char>(c));
  return key;
}

// ---- tensors ----

std::size_t count(const std::vector<std::size_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>());
}

class Maker {
 public:
  Maker(const Config& config, DType dtype, std::uint64_t seed)
      : config_(config), dtype_(dtype), seed_(seed) {}

  std::vector<StoredTensor> make() {
    const int V = config_.vocab_size, H = config_.hidden_size;
    matrix("model.embed_tokens.weight", V, H);
    for (int i = 0; i < config_.num_hidden_layers; ++i) {
      layer("model.layers." + std::to_string(i) + ".", config_.layer_types[size(i)]);
    }
    norm("model.norm.weight", H);
    if (!config_.tie_word_embeddings) matrix("lm_head.weight", V, H);
    if (config_.mtp_num_hidden_layers > 0) make_mtp();
    return std::move(tensors_);
  }

 private:
  void layer(const std::string& at, LayerType type) {
    const int H = config_.hidden_size, I = config_.intermediate_size;
    norm(at + "input_layernorm.weight", H);
    norm(at + "post_attention_layernorm.weight", H);
    if (type == LayerType::full_attention) {
      attention(at + "self_attn.");
    } else {
      deltanet(at + "linear_attn.");
    }
    matrix(at + "mlp.gate_proj.weight", I, H);
    matrix(at + "mlp.up_proj.weight", I, H);
    matrix(at + "mlp.down_proj.weight", H, I);
  }

  void attention(const std::string& at) {
    const int H = config_.hidden_size, D = config_.head_dim;
    const int Hq = config_.num_attention_heads, Hkv = config_.num_key_value_heads;
    matrix(at + "q_proj.weight", Hq * D * (config_.attn_output_gate ? 2 : 1), H);
    matrix(at + "k_proj.weight", Hkv * D, H);
    matrix(at + "v_proj.weight", Hkv * D, H);
    matrix(at + "o_proj.weight", H, Hq * D);
    if (config_.qk_norm) {
      norm(at + "q_norm.weight", D);
      norm(at + "k_norm.weight", D);
    }
  }

  void deltanet(const std::string& at) {
    const int H = config_.hidden_size, width = config_.linear_conv_kernel_dim;
    const int Hk = config_.linear_num_key_heads, Dk = config_.linear_key_head_dim;
    const int Hv = config_.linear_num_value_heads, Dv = config_.linear_value_head_dim;
    const int C = 2 * Hk * Dk + Hv * Dv;
    matrix(at + "in_proj_qkv.weight", C, H);
    matrix(at + "in_proj_z.weight", Hv * Dv, H);
    matrix(at + "in_proj_a.weight", Hv, H);
    matrix(at + "in_proj_b.weight", Hv, H);
    matrix(at + "out_proj.weight", H, Hv * Dv);
    const float deviation = 1 / std::sqrt(static_cast<float>(width));
    bells(at + "conv1d.weight", dtype_, {size(C), 1, size(width)}, 0, deviation);
    spread_decay(at + "A_log", bells(at + "dt_bias", dtype_, {size(Hv)}, 0, 1));
    bells(at + "norm.weight", DType::F32, {size(Dv)}, 1, kNormSpread);
  }

  // The MTP head of chapter 14: in the file, not in the model.
  void make_mtp() {
    const int H = config_.hidden_size;
    matrix("mtp.fc.weight", H, 2 * H);
    for (const char* name : {"pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"}) {
      norm("mtp." + std::string(name) + ".weight", H);
    }
    for (int i = 0; i < config_.mtp_num_hidden_layers; ++i) {
      layer("mtp.layers." + std::to_string(i) + ".", LayerType::full_attention);
    }
  }

  void matrix(const std::string& name, int rows, int cols) {
    const float scale = 1 / std::sqrt(static_cast<float>(cols));
    const std::uint64_t key = stream(name, seed_);
    const std::size_t row_bytes = stored_bytes(dtype_, size(cols));
    std::byte* data = store(name, dtype_, {size(rows), size(cols)});
    parallel_for(rows, std::max(1, 65536 / cols), [&](int begin, int end) {
      std::vector<float> values(size(cols));
      for (int n = begin; n < end; ++n) {
        const std::uint64_t first = key + size(n) * size(cols);
        for (int i = 0; i < cols; ++i) values[size(i)] = scale * bell(scramble(first + size(i)));
        from_float(values.data(), values.size(), dtype_, data + row_bytes * size(n));
      }
    });
  }

  // As stored: what has to be added to 1 where the model's norms are like that.
  void norm(const std::string& name, int length) {
    bells(name, dtype_, {size(length)}, config_.norm_is_zero_centred ? 0 : 1, kNormSpread);
  }

  // Where in_proj_a gives 0, head h keeps exp(-rate) of S per token. The rates are spread evenly
  // by their logarithms, between a memory of one token and one of 2,000.
  void spread_decay(const std::string& name, const Tensor1& dt_bias) {
    const int Hv = dim(dt_bias, 0);
    const double shortest = std::log(-std::log(0.5)), longest = std::log(-std::log(0.9995));
    Tensor1 A_log = uninit(Hv);
    for (int h = 0; h < Hv; ++h) {
      const double share = (h + 0.5) / Hv;
      const double softplus = std::log1p(std::exp(double{dt_bias(h)}));
      A_log(h) = static_cast<float>(longest + share * (shortest - longest) - std::log(softplus));
    }
    keep(name, DType::F32, {size(Hv)}, std::move(A_log));
  }

  Tensor1 bells(const std::string& name, DType dtype, std::vector<std::size_t> shape, float mean,
                float deviation) {
    Tensor1 values = uninit(count(shape));
    const std::uint64_t key = stream(name, seed_);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values.data()[i] = mean + deviation * bell(scramble(key + i));
    }
    return keep(name, dtype, std::move(shape), std::move(values));
  }

  // Rounds a small parameter to bf16, stores it, and gives it back as it will be read.
  Tensor1 keep(const std::string& name, DType dtype, std::vector<std::size_t> shape,
               Tensor1 values) {
    for (float& value : values) value = bf16_to_float(float_to_bf16(value));
    std::byte* data = store(name, dtype, std::move(shape));
    from_float(values.data(), values.size(), dtype, data);
    to_float(dtype, data, values.size(), values.data());
    return values;
  }

  // Adds a tensor to the list; its bytes are still to be set.
  std::byte* store(const std::string& name, DType dtype, std::vector<std::size_t> shape) {
    const std::shared_ptr<std::byte> data = lasting_block(stored_bytes(dtype, count(shape)));
    tensors_.push_back({name, dtype, std::move(shape), data.get(), "a random model", data});
    return data.get();
  }

  static std::size_t size(int n) { return static_cast<std::size_t>(n); }

  static constexpr float kNormSpread = 0.1f;

  const Config& config_;
  const DType dtype_;
  const std::uint64_t seed_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace

std::vector<std::string> shape_names() {
  std::vector<std::string> names;
  for (const NamedShape& shape : kShapes) names.push_back(shape.name);
  return names;
}

Config named_shape(const std::string& name) {
  std::string known;
  for (const NamedShape& shape : kShapes) {
    if (name == shape.name) return shape.config();
    known += (known.empty() ? "" : ", ") + std::string(shape.name);
  }
  throw std::invalid_argument("no shape is called \"" + name + "\"; there are " + known);
}

RandomModel random_model(const Config& config, DType dtype, std::uint64_t seed) {
  RandomModel random;
  random.tensors = Maker(config, dtype, seed).make();
  random.model = load_model(config, checkpoint_of(random));
  return random;
}

Checkpoint checkpoint_of(const RandomModel& random) {
  Checkpoint checkpoint;
  checkpoint.path = "a random model";
  for (const StoredTensor& tensor : random.tensors) checkpoint.tensors[tensor.name] = tensor;
  return checkpoint;
}

}  // namespace qwen
