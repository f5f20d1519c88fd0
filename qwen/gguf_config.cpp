#include "qwen/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <stdexcept>

#include "qwen/gguf.h"
#include "qwen/gguf_metadata.h"
#include "qwen/printable.h"

namespace qwen {
namespace {

// Bounds that no model comes near and within which products of two counts are still an int.
constexpr std::int64_t kMostHeads = 1 << 14;  // heads, numbers in a head, blocks
constexpr std::int64_t kWidest = 1 << 24;     // vocabulary, hidden size
constexpr std::int64_t kLongest = std::numeric_limits<int>::max();  // context

std::string text(double number) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%g", number);
  return digits;
}

// The metadata of an architecture: its keys, and complaints about them.
class Metadata {
 public:
  explicit Metadata(const Gguf& gguf) : gguf_(gguf), architecture_(gguf_architecture(gguf)) {}

  const std::string& architecture() const { return architecture_; }
  std::string key(const std::string& name) const { return architecture_ + "." + name; }

  [[noreturn]] void fail(const std::string& why) const {
    throw std::runtime_error(gguf_.path + ": " + why);
  }

  [[noreturn]] void fail_missing(const std::string& name) const {
    fail("metadata " + key(name) + " is missing");
  }

  int in_range(const std::string& name, std::int64_t value, std::int64_t highest) const {
    if (value < 1 || value > highest) {
      fail(key(name) + " is " + std::to_string(value) + ", expected 1 to " +
           std::to_string(highest));
    }
    return static_cast<int>(value);
  }

  std::optional<int> find_count(const std::string& name, std::int64_t highest) const {
    const auto value = find_integer(gguf_, key(name));
    return value ? std::optional(in_range(name, *value, highest)) : std::nullopt;
  }

  int count(const std::string& name, std::int64_t highest) const {
    const auto value = find_count(name, highest);
    if (!value) fail_missing(name);
    return *value;
  }

  // One number for all blocks. Some files list it block by block, with 0 for the blocks that have
  // no use for it.
  int count_of_blocks(const std::string& name, std::int64_t highest) const {
    auto list = find_integers(gguf_, key(name));
    if (!list) fail_missing(name);
    if (list->size() > 1) std::erase(*list, 0);
    if (list->empty()) fail(key(name) + " is 0 for every block");
    if (std::adjacent_find(list->begin(), list->end(), std::not_equal_to<>()) != list->end()) {
      fail(key(name) + " differs between blocks, which is not supported");
    }
    return in_range(name, list->front(), highest);
  }

  // A number that is one as a float, too, which is what is computed with.
  std::optional<double> find_number(const std::string& name, double lowest) const {
    constexpr double highest = std::numeric_limits<float>::max();
    const auto value = find_float(gguf_, key(name));
    if (value && !(*value >= lowest && *value <= highest)) {
      fail(key(name) + " is " + text(*value) + ", expected a number from " + text(lowest) + " to " +
           text(highest));
    }
    return value;
  }

  double number(const std::string& name, double lowest) const {
    const auto value = find_number(name, lowest);
    if (!value) fail_missing(name);
    return *value;
  }

 private:
  const Gguf& gguf_;
  std::string architecture_;
};

// ---- parts of the config ------------------------------------------------------------------

// The number of blocks is the file's; block_count may or may not count the one that drafts, and
// may still count it where its tensors were taken out. A file with still fewer blocks is damaged.
void read_blocks(const Gguf& gguf, const Metadata& metadata, Config& config) {
  for (const GgufBlock block : gguf_blocks(gguf)) {
    if (block == GgufBlock::mtp) {
      ++config.mtp_num_hidden_layers;
    } else {
      config.layer_types.push_back(block == GgufBlock::linear_attention
                                       ? LayerType::linear_attention
                                       : LayerType::full_attention);
    }
  }
  const int layers = static_cast<int>(config.layer_types.size());
  config.num_hidden_layers = layers;
  const int stated = metadata.count("block_count", kMostHeads);
  if (stated == layers || stated == layers + config.mtp_num_hidden_layers) return;
  const bool may_draft = metadata.architecture() == "qwen35";
  const std::string difference = metadata.key("block_count") + " is " + std::to_string(stated) +
                                 ", but there are tensors of " + std::to_string(layers) + " layers";
  if (stated > layers + (may_draft ? 1 : 0)) metadata.fail(difference + ": the file is incomplete");
  config.remarks.push_back(gguf.path + ": " + difference + "; the tensors decide");
}

void read_embedding(const Gguf& gguf, const Metadata& metadata, Config& config) {
  const auto tensor = [&](const char* name) {
    return std::find_if(gguf.tensors.begin(), gguf.tensors.end(),
                        [&](const GgufTensor& t) { return t.name == name; });
  };
  const auto embedding = tensor("token_embd.weight");
  if (embedding == gguf.tensors.end()) metadata.fail("tensor token_embd.weight is missing");
  const std::size_t rows = embedding->shape.front();
  if (rows == 0 || rows > static_cast<std::size_t>(kWidest)) {
    metadata.fail("tensor token_embd.weight has " + std::to_string(rows) + " rows, expected 1 to " +
                  std::to_string(kWidest));
  }
  config.vocab_size = static_cast<int>(rows);
  config.tie_word_embeddings = tensor("output.weight") == gguf.tensors.end();
}

void read_attention(const Metadata& metadata, Config& config) {
  config.num_attention_heads = metadata.count_of_blocks("attention.head_count", kMostHeads);
  config.num_key_value_heads = metadata.count_of_blocks("attention.head_count_kv", kMostHeads);
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    metadata.fail(metadata.key("attention.head_count") + " is " +
                  std::to_string(config.num_attention_heads) + ", expected a multiple of " +
                  metadata.key("attention.head_count_kv") + ", which is " +
                  std::to_string(config.num_key_value_heads));
  }
  config.head_dim = metadata.find_count("attention.key_length", kMostHeads)
                        .value_or(config.hidden_size / config.num_attention_heads);
  metadata.in_range("attention.key_length", config.head_dim, kMostHeads);
  const int value_length =
      metadata.find_count("attention.value_length", kMostHeads).value_or(config.head_dim);
  if (value_length != config.head_dim) {
    metadata.fail(metadata.key("attention.value_length") + " is " + std::to_string(value_length) +
                  ", expected " + std::to_string(config.head_dim) + ", the length of a key");
  }
}

// The factor that rotary_dim takes back to `rotated`, rounding down: 30.0 / 44 * 44 is a hair less
// than 30.
double rotary_factor(int rotated, int head_dim) {
  double factor = static_cast<double>(rotated) / head_dim;
  while (static_cast<int>(head_dim * factor) < rotated) factor = std::nextafter(factor, 1.0);
  return factor;
}

// Scaled RoPE is not supported. When a file asks for it is for llama.cpp to say: without a type a
// factor is linear, 0 stands for 1, an older key counts where the newer is missing, and the type
// "none" makes nothing of either.
void refuse_rope_scaling(const Gguf& gguf, const Metadata& metadata) {
  const auto expect_1 = [&](const std::string& key, bool may_be_0) {
    const double factor = find_float(gguf, key).value_or(1.0);
    if (factor == 1 || (factor == 0 && may_be_0)) return;
    metadata.fail(key + " is " + text(factor) + ", expected 1: scaled RoPE is not supported");
  };
  expect_1(metadata.key("rope.scaling.attn_factor"), false);
  const auto type = find_string(gguf, metadata.key("rope.scaling.type")).value_or("linear");
  if (type == "none") return;
  if (type != "linear" && type != "default") {
    metadata.fail(metadata.key("rope.scaling.type") + " is " + in_quotes(type) +
                  ", which is not supported; expected \"none\"");
  }
  const std::string newer = metadata.key("rope.scaling.factor");
  expect_1(gguf.metadata.contains(newer) ? newer : metadata.key("rope.scale_linear"), true);
}

// rope.dimension_sections needs no reading: they tell positions in a picture apart, and a text
// token has the same position in all of them.
void read_rope(const Gguf& gguf, const Metadata& metadata, Config& config) {
  refuse_rope_scaling(gguf, metadata);
  constexpr double above_zero = std::numeric_limits<float>::min();
  config.rope_theta = metadata.find_number("rope.freq_base", above_zero).value_or(10000.0);
  const int rotated =
      metadata.find_count("rope.dimension_count", kMostHeads).value_or(config.head_dim);
  if (rotated > config.head_dim || rotated % 2 != 0) {
    metadata.fail(metadata.key("rope.dimension_count") + " is " + std::to_string(rotated) +
                  ", expected an even number up to " + std::to_string(config.head_dim) +
                  ", the length of a head");
  }
  config.partial_rotary_factor = rotary_factor(rotated, config.head_dim);
}

void read_deltanet(const Metadata& metadata, Config& config) {
  config.linear_conv_kernel_dim = metadata.count("ssm.conv_kernel", kMostHeads);
  config.linear_num_key_heads = metadata.count("ssm.group_count", kMostHeads);
  config.linear_num_value_heads = metadata.count("ssm.time_step_rank", kMostHeads);
  config.linear_key_head_dim = metadata.count("ssm.state_size", kMostHeads);
  const int inner = metadata.count("ssm.inner_size", kMostHeads * kMostHeads);
  if (config.linear_num_value_heads % config.linear_num_key_heads != 0) {
    metadata.fail(metadata.key("ssm.time_step_rank") + " is " +
                  std::to_string(config.linear_num_value_heads) + ", expected a multiple of " +
                  metadata.key("ssm.group_count") + ", which is " +
                  std::to_string(config.linear_num_key_heads));
  }
  if (inner % config.linear_num_value_heads != 0) {
    metadata.fail(metadata.key("ssm.inner_size") + " is " + std::to_string(inner) +
                  ", expected a multiple of " + metadata.key("ssm.time_step_rank") + ", which is " +
                  std::to_string(config.linear_num_value_heads));
  }
  config.linear_value_head_dim = inner / config.linear_num_value_heads;
}

// Generation ends at what the metadata call an end, and at the two tokens that the families here
// end a turn or a text with: files name only one of them.
std::vector<int> end_tokens(const Gguf& gguf, int vocab_size) {
  std::vector<std::int64_t> ids;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eos_token_ids",
                          "tokenizer.ggml.eot_token_id"}) {
    const auto found = find_integers(gguf, key).value_or(std::vector<std::int64_t>{});
    ids.insert(ids.end(), found.begin(), found.end());
  }
  const auto tokens =
      find_strings(gguf, "tokenizer.ggml.tokens").value_or(std::vector<std::string>{});
  for (const char* text : {"<|im_end|>", "<|endoftext|>"}) {
    const auto token = std::find(tokens.begin(), tokens.end(), text);
    if (token != tokens.end()) ids.push_back(token - tokens.begin());
  }
  std::vector<int> ends;
  std::set<std::int64_t> known;
  for (const std::int64_t id : ids) {
    const bool is_row = id >= 0 && id < vocab_size;
    if (is_row && known.insert(id).second) ends.push_back(static_cast<int>(id));
  }
  return ends;
}

}  // namespace

Config read_gguf_config(const std::string& path) {
  const Gguf gguf = read_gguf(path);
  const Metadata metadata(gguf);
  const bool is_qwen35 = metadata.architecture() == "qwen35";

  Config config;
  config.model_type = is_qwen35 ? "qwen3_5_text" : metadata.architecture();
  config.qk_norm = metadata.architecture() != "llama";
  config.norm_is_zero_centred = is_qwen35;
  config.attn_output_gate = is_qwen35;
  read_blocks(gguf, metadata, config);
  read_embedding(gguf, metadata, config);
  config.hidden_size = metadata.count("embedding_length", kWidest);
  config.intermediate_size = metadata.count_of_blocks("feed_forward_length", kWidest);
  config.max_position_embeddings = metadata.count("context_length", kLongest);
  config.rms_norm_eps = static_cast<float>(metadata.number("attention.layer_norm_rms_epsilon", 0));
  config.eos_token_id = end_tokens(gguf, config.vocab_size);
  read_attention(metadata, config);
  read_rope(gguf, metadata, config);
  if (is_qwen35) read_deltanet(metadata, config);
  return config;
}

}  // namespace qwen
