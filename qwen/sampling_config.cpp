#include "qwen/sampling_config.h"

#include <climits>
#include <filesystem>
#include <stdexcept>

#include "qwen/json.h"

namespace qwen {
namespace {

namespace fs = std::filesystem;

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
  const fs::path directory = fs::is_directory(path) ? fs::path(path) : fs::path(path).parent_path();
  const std::string file = (directory / "generation_config.json").string();
  const bool gguf = path.ends_with(".gguf") && !fs::is_directory(path);
  if (gguf || !fs::exists(file)) return {};
  const Json value = read_json(file);
  const Sampling sampling = from_json(JsonObject(value, file));
  check_sampling(sampling, file);
  return sampling;
}

}  // namespace qwen
