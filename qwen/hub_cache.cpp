#include "qwen/hub_cache.h"

#include <cstdlib>
#include <filesystem>
#include <regex>
#include <system_error>

namespace qwen {
namespace {

namespace fs = std::filesystem;

// $name/rest, where the variable is set.
std::optional<fs::path> in_environment(const char* name, const char* rest) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return fs::path(value) / rest;
}

std::optional<fs::path> cache_folder() {
  if (const auto folder = in_environment("HF_HUB_CACHE", "")) return folder;
  if (const auto folder = in_environment("HF_HOME", "hub")) return folder;
  if (const auto folder = in_environment("XDG_CACHE_HOME", "huggingface/hub")) return folder;
  return in_environment("HOME", ".cache/huggingface/hub");
}

// The text models of the family by their size in billions; nothing for those of other kinds, and
// for base models, which have not learned to talk.
std::optional<double> billions(const std::string& folder) {
  static const std::regex pattern("models--Qwen--Qwen3\\.5-(\\d+)(\\.\\d+)?B");
  std::smatch found;
  if (!std::regex_match(folder, found, pattern)) return std::nullopt;
  const double tenths = found[2].matched ? (found[2].str()[1] - '0') / 10.0 : 0.0;
  return std::stoi(found[1]) + tenths;
}

bool is_complete(const fs::path& snapshot) {
  std::error_code error;
  const auto has = [&](const char* name) { return fs::exists(snapshot / name, error); };
  return has("config.json") && has("tokenizer.json") &&
         (has("model.safetensors") || has("model.safetensors.index.json"));
}

}  // namespace

std::optional<std::string> qwen_in_hub_cache() {
  const auto cache = cache_folder();
  std::optional<std::string> best;
  double smallest = 0;
  std::error_code error;  // a folder that is missing or cannot be read holds nothing
  if (!cache) return best;
  for (const auto& model : fs::directory_iterator(*cache, error)) {
    const auto size = billions(model.path().filename().string());
    if (!size || (best && *size >= smallest)) continue;
    for (const auto& snapshot : fs::directory_iterator(model.path() / "snapshots", error)) {
      if (!is_complete(snapshot.path())) continue;
      best = snapshot.path().string();
      smallest = *size;
    }
  }
  return best;
}

}  // namespace qwen
