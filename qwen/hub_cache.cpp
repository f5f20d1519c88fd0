#include "qwen/hub_cache.h"

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <regex>
#include <stdexcept>
#include <system_error>

#include "qwen/config.h"
#include "qwen/file.h"
#include "qwen/weights.h"

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
  static const std::regex pattern("models--Qwen--Qwen3\\.5-(\\d+(\\.\\d+)?)B");
  std::smatch found;
  if (!std::regex_match(folder, found, pattern)) return std::nullopt;
  return std::stod(found[1]);
}

// Throws where the snapshot is not one that a program can begin with.
void try_to_open(const fs::path& snapshot) {
  read_config(snapshot.string());
  open_checkpoint(snapshot.string());
  map_file((snapshot / "tokenizer.json").string());
}

}  // namespace

HubCache search_hub_cache() {
  HubCache result;
  const auto cache = cache_folder();
  double smallest = std::numeric_limits<double>::infinity();
  std::error_code error;  // a folder that is missing or cannot be read holds nothing
  if (!cache) return result;
  for (const auto& model : fs::directory_iterator(*cache, error)) {
    const auto size = billions(model.path().filename().string());
    if (!size || *size >= smallest) continue;
    for (const auto& snapshot : fs::directory_iterator(model.path() / "snapshots", error)) {
      try {
        try_to_open(snapshot.path());
        result.model = snapshot.path().string();
        smallest = *size;
      } catch (const std::runtime_error& why) {
        result.remarks.push_back("passed over in the hub's cache: " + std::string(why.what()));
      }
    }
  }
  return result;
}

}  // namespace qwen
