#include "qwen/config.h"

#include <stdexcept>

#include "qwen/checkpoint_kind.h"
#include "qwen/config_json.h"
#include "qwen/gguf_config.h"
#include "qwen/json.h"

namespace qwen {
namespace {

void expect_multiple(const std::string& path, const char* key, int value, const char* of_key,
                     int of) {
  if (value % of == 0) return;
  throw std::runtime_error(path + ": " + key + " is " + std::to_string(value) +
                           ", expected a multiple of " + of_key + " = " + std::to_string(of));
}

// What must hold between the numbers, wherever they came from.
void check(const Config& config, const std::string& path) {
  expect_multiple(path, "num_attention_heads", config.num_attention_heads, "num_key_value_heads",
                  config.num_key_value_heads);
  if (config.linear_num_key_heads > 0) {
    expect_multiple(path, "linear_num_value_heads", config.linear_num_value_heads,
                    "linear_num_key_heads", config.linear_num_key_heads);
  }
  const double factor = config.partial_rotary_factor;
  if (!(factor > 0 && factor <= 1) || rotary_dim(config) % 2 != 0 || rotary_dim(config) == 0) {
    throw std::runtime_error(path + ": partial_rotary_factor is " + shown(factor) +
                             ", expected one that makes an even number of the " +
                             std::to_string(config.head_dim) + " dimensions of a head rotate");
  }
}

}  // namespace

int rotary_dim(const Config& config) {
  return static_cast<int>(config.head_dim * config.partial_rotary_factor);
}

Config read_config(const std::string& path) {
  const bool is_gguf = checkpoint_kind(path) == CheckpointKind::gguf;
  Config config = is_gguf ? read_gguf_config(path) : read_config_json(checkpoint_folder(path));
  check(config, path);
  return config;
}

}  // namespace qwen
