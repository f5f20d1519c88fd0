#include "qwen/sampling_config.h"

#include <climits>
#include <stdexcept>

#include "qwen/checkpoint_kind.h"
#include "qwen/file.h"
#include "qwen/json.h"

namespace qwen {
namespace {

double number(const JsonObject& json, const char* key, double missing) {
  return json.has(key) ? json.number(key) : missing;
}

Sampling from_json(const JsonObject& json) {
  Sampling sampling;
  sampling.repetition_penalty = number(json, "repetition_penalty", 1);
  if (!json.has("do_sample") || !json.boolean("do_sample")) return sampling;
  sampling.temperature = number(json, "temperature", 1);
  if (sampling.temperature == 0) {
    json.fail("temperature", "a number above 0 where do_sample is true");
  }
  sampling.top_k = json.has("top_k") ? static_cast<int>(json.integer("top_k", 0, INT_MAX)) : 50;
  sampling.top_p = number(json, "top_p", 1);
  sampling.min_p = number(json, "min_p", 0);
  return sampling;
}

}  // namespace

Sampling read_sampling(const std::string& path) {
  const std::string file = checkpoint_folder(path) + "/generation_config.json";
  const bool is_gguf = checkpoint_kind(path) == CheckpointKind::gguf;
  if (is_gguf || !exists(file)) return {};
  const Json value = read_json(file);
  const Sampling sampling = from_json(JsonObject(value, file));
  check_sampling(sampling, file);
  return sampling;
}

}  // namespace qwen
