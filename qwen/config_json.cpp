#include "qwen/config_json.h"

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>

#include "qwen/file.h"
#include "qwen/json.h"

namespace qwen {
namespace {

namespace fs = std::filesystem;

// Far above any model there is, and small enough that no product of two needs more than an int.
constexpr int kMaxVocab = 1 << 24;
constexpr int kMaxSize = 1 << 20;
constexpr int kMaxLayers = 1 << 12;
constexpr int kMaxHeads = 1 << 12;
constexpr int kMaxHeadDim = 1 << 14;
constexpr int kMaxKernel = 1 << 8;

constexpr double kLargestFloat = std::numeric_limits<float>::max();
constexpr double kSmallestFloat = std::numeric_limits<float>::min();

int count(const JsonObject& json, const char* key, int highest) {
  return static_cast<int>(json.integer(key, 1, highest));
}

// What a family has, and what its configs may leave unsaid, as in the reference's classes.
Config family(const JsonObject& json) {
  Config config;
  config.model_type = json.string("model_type");
  config.rms_norm_eps = 1e-6f;
  config.rope_theta = 10'000;
  config.max_position_embeddings = 32'768;
  if (config.model_type == "qwen3_5_text") {
    config.norm_is_zero_centred = config.qk_norm = config.attn_output_gate = true;
    config.head_dim = 256;
    config.partial_rotary_factor = 0.25;
  } else if (config.model_type == "qwen3") {
    config.qk_norm = true;
    config.head_dim = 128;
  } else if (config.model_type == "llama") {
    config.max_position_embeddings = 2'048;
  } else {
    json.fail("model_type",
              R"("qwen3_5", "qwen3_5_text", "qwen3" or "llama": others are unsupported)");
  }
  return config;
}

bool has_linear_attention(const Config& config) {
  return config.model_type == "qwen3_5_text";
}

void refuse_unsupported(const JsonObject& json) {
  if (json.has("quantization_config")) {
    json.fail("quantization_config", "none: quantised safetensors are unsupported");
  }
  for (const char* bias : {"attention_bias", "mlp_bias"}) {
    if (json.has(bias) && json.boolean(bias)) json.fail(bias, "false: biases are unsupported");
  }
  if (json.has("hidden_act") && json.string("hidden_act") != "silu") {
    json.fail("hidden_act", "\"silu\": other activations are unsupported");
  }
}

void read_sizes(const JsonObject& json, Config& config) {
  config.vocab_size = count(json, "vocab_size", kMaxVocab);
  config.hidden_size = count(json, "hidden_size", kMaxSize);
  config.intermediate_size = count(json, "intermediate_size", kMaxSize);
  config.num_hidden_layers = count(json, "num_hidden_layers", kMaxLayers);
  if (json.has("max_position_embeddings")) {
    config.max_position_embeddings = count(json, "max_position_embeddings", INT32_MAX);
  }
  if (json.has("rms_norm_eps")) {
    const double eps = json.number("rms_norm_eps");
    if (eps < 0 || eps > kLargestFloat) json.fail("rms_norm_eps", "a float from 0");
    config.rms_norm_eps = static_cast<float>(eps);
  }
  if (json.has("mtp_num_hidden_layers")) {
    config.mtp_num_hidden_layers =
        static_cast<int>(json.integer("mtp_num_hidden_layers", 0, kMaxLayers));
  }
}

void read_attention(const JsonObject& json, Config& config) {
  config.num_attention_heads = count(json, "num_attention_heads", kMaxHeads);
  config.num_key_value_heads = config.num_attention_heads;
  if (json.has("num_key_value_heads") || config.model_type != "llama") {
    config.num_key_value_heads = count(json, "num_key_value_heads", kMaxHeads);
  }
  if (json.has("head_dim")) {
    config.head_dim = count(json, "head_dim", kMaxHeadDim);
  } else if (config.head_dim == 0) {
    config.head_dim = config.hidden_size / config.num_attention_heads;
  }
}

void read_linear_attention(const JsonObject& json, Config& config) {
  config.linear_num_key_heads = count(json, "linear_num_key_heads", kMaxHeads);
  config.linear_num_value_heads = count(json, "linear_num_value_heads", kMaxHeads);
  config.linear_key_head_dim = count(json, "linear_key_head_dim", kMaxHeadDim);
  config.linear_value_head_dim = count(json, "linear_value_head_dim", kMaxHeadDim);
  config.linear_conv_kernel_dim = count(json, "linear_conv_kernel_dim", kMaxKernel);
}

// The list in the config; else every full_attention_interval-th layer is a full one.
void read_layer_types(const JsonObject& json, Config& config) {
  const auto layers = static_cast<std::size_t>(config.num_hidden_layers);
  if (json.has("layer_types")) {
    for (const Json& type : json.array("layer_types")) {
      const bool linear = type == "linear_attention" && has_linear_attention(config);
      if (!linear && type != "full_attention") {
        json.fail("layer_types", "a list of types of attention that " + config.model_type +
                                     " has here; " + shown(type) + " is unsupported");
      }
      config.layer_types.push_back(linear ? LayerType::linear_attention
                                          : LayerType::full_attention);
    }
    if (config.layer_types.size() != layers) {
      json.fail("layer_types", "num_hidden_layers = " + std::to_string(layers) + " entries");
    }
    return;
  }
  if (json.has("use_sliding_window") && json.boolean("use_sliding_window")) {
    json.fail("use_sliding_window", "false: sliding attention is unsupported");
  }
  config.layer_types.assign(layers, LayerType::full_attention);
  if (!has_linear_attention(config)) return;
  std::size_t interval = 4;
  if (json.has("full_attention_interval")) {
    interval = static_cast<std::size_t>(count(json, "full_attention_interval", kMaxLayers));
  }
  for (std::size_t i = 0; i < layers; ++i) {
    if ((i + 1) % interval != 0) config.layer_types[i] = LayerType::linear_attention;
  }
}

// Where the reference looks for RoPE parameters first: in rope_scaling, the older name, if it is
// there and not empty, else in rope_parameters.
std::optional<JsonObject> rope_object(const JsonObject& json, Config& config) {
  std::optional<JsonObject> chosen;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!json.has(key) || json.object(key).value().empty()) continue;
    if (!chosen) {
      chosen = json.object(key);
    } else if (chosen->value() != json.object(key).value()) {
      config.remarks.push_back(json.source() + ": rope_scaling and rope_parameters differ; " +
                               "rope_scaling is used");
    }
  }
  return chosen;
}

// Where a RoPE parameter stands: in the object if it is there, else at the top level.
const JsonObject& rope_place(const JsonObject& json, const std::optional<JsonObject>& rope,
                             const char* key, Config& config) {
  const bool inside = rope && rope->has(key), outside = json.has(key);
  if (inside && outside && rope->number(key) != json.number(key)) {
    config.remarks.push_back(json.source() + ": " + key + " is " + shown(json.number(key)) +
                             " at the top level; " + shown(rope->number(key)) + " in " +
                             rope->source() + " is used");
  }
  return inside ? *rope : json;
}

void read_rope(const JsonObject& json, Config& config) {
  const auto rope = rope_object(json, config);
  for (const char* key : {"rope_type", "type"}) {
    if (!rope || !rope->has(key)) continue;
    if (rope->string(key) != "default") rope->fail(key, "\"default\": scaled RoPE is unsupported");
    break;  // rope_type is the one that counts
  }
  for (const char* type : {"full_attention", "linear_attention"}) {
    if (rope && rope->has(type)) rope->fail(type, "nothing: RoPE by type of layer is unsupported");
  }
  const JsonObject& theta = rope_place(json, rope, "rope_theta", config);
  if (theta.has("rope_theta")) config.rope_theta = theta.number("rope_theta");
  if (config.rope_theta < kSmallestFloat || config.rope_theta > kLargestFloat) {
    theta.fail("rope_theta", "a float above 0");
  }

  const JsonObject& share = rope_place(json, rope, "partial_rotary_factor", config);
  double factor = config.partial_rotary_factor;
  if (share.has("partial_rotary_factor")) factor = share.number("partial_rotary_factor");
  if (has_linear_attention(config)) {
    config.partial_rotary_factor = factor;
  } else if (factor != 1) {
    config.remarks.push_back(json.source() + ": partial_rotary_factor is ignored: " +
                             config.model_type + " rotates whole heads");
  }
}

// The ids that end a text, added to those known already.
void add_eos(const JsonObject& json, Config& config) {
  if (!json.has("eos_token_id")) return;
  std::set<std::int64_t> known(config.eos_token_id.begin(), config.eos_token_id.end());
  for (const std::int64_t id : json.integers("eos_token_id", 0, INT32_MAX)) {
    if (known.insert(id).second) config.eos_token_id.push_back(static_cast<int>(id));
  }
}

Config read_text_config(const JsonObject& json) {
  Config config = family(json);
  refuse_unsupported(json);
  read_sizes(json, config);
  read_attention(json, config);
  if (has_linear_attention(config)) read_linear_attention(json, config);
  read_layer_types(json, config);
  read_rope(json, config);
  add_eos(json, config);
  if (json.has("tie_word_embeddings")) {
    config.tie_word_embeddings = json.boolean("tie_word_embeddings");
  }
  return config;
}

// config.json holds the text model's config, or that of a multimodal wrapper around it.
Config read_model_config(const std::string& path) {
  const Json value = read_json(path);
  const JsonObject json(value, path);
  if (json.string("model_type") != "qwen3_5") return read_text_config(json);
  refuse_unsupported(json);
  const JsonObject text = json.object("text_config");
  Config config = read_text_config(text);
  if (!text.has("tie_word_embeddings") && json.has("tie_word_embeddings")) {
    config.tie_word_embeddings = json.boolean("tie_word_embeddings");
  }
  return config;
}

}  // namespace

Config read_config_json(const std::string& directory) {
  Config config = read_model_config((fs::path(directory) / "config.json").string());
  const std::string generation = (fs::path(directory) / "generation_config.json").string();
  if (exists(generation)) {
    const Json value = read_json(generation);
    add_eos(JsonObject(value, generation), config);
  }
  return config;
}

}  // namespace qwen
