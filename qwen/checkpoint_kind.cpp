#include "qwen/checkpoint_kind.h"

#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "qwen/file.h"
#include "qwen/printable.h"

namespace qwen {

namespace fs = std::filesystem;

namespace {

bool is_directory(const std::string& path) {
  std::error_code error;  // whatever it is, reading the file will say it
  return fs::is_directory(path, error);
}

}  // namespace

CheckpointKind checkpoint_kind(const std::string& path) {
  if (is_directory(path)) return CheckpointKind::directory;
  const auto file = map_file(path);
  const std::string_view bytes = text(*file);
  if (bytes.starts_with("GGUF")) return CheckpointKind::gguf;
  // What is damaged is read as what it is called, for a message that says how.
  if (path.ends_with(".gguf")) return CheckpointKind::gguf;
  if (path.ends_with(".safetensors")) return CheckpointKind::safetensors;
  constexpr std::size_t header = 8;  // where that of a safetensors file begins
  if (bytes.size() > header && bytes[header] == '{') return CheckpointKind::safetensors;
  throw std::runtime_error(path + ": starts with " + in_quotes(bytes.substr(0, 4)) +
                           ", expected a directory, a safetensors file, or a GGUF file, which "
                           "starts with \"GGUF\"");
}

std::string checkpoint_folder(const std::string& path) {
  if (is_directory(path)) return path;
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace qwen
