#include "qwen/input.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <system_error>

#include "qwen/file.h"

namespace qwen {
namespace {

std::string read_stream(std::FILE* stream, const std::string& name, std::size_t most) {
  std::string all;
  char piece[1 << 16];
  while (const std::size_t count = std::fread(piece, 1, sizeof piece, stream)) {
    all.append(piece, count);
    if (all.size() > most) {
      throw std::runtime_error("cannot read " + name + ": it goes on after " +
                               std::to_string(most) + " bytes; give the name of a file");
    }
  }
  if (std::ferror(stream)) {
    throw std::runtime_error("cannot read " + name + ": " + std::generic_category().message(errno));
  }
  return all;
}

// A pipe, a terminal, or another device: what can be read, but has no size.
bool is_stream(const std::string& path) {
  std::error_code none;  // what is not there is for map_file to say
  const std::filesystem::file_status status = std::filesystem::status(path, none);
  return is_fifo(status) || is_character_file(status);
}

}  // namespace

std::string name_of_input(const std::string& path) {
  return path == "-" ? "stdin" : path;
}

std::string read_input(const std::string& path, std::size_t most) {
  if (path == "-") return read_stream(stdin, name_of_input(path), most);
  if (!is_stream(path)) return std::string(text(*map_file(path)));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(path.c_str(), "rb"),
                                                               std::fclose);
  if (!stream) {
    throw std::runtime_error("cannot read " + path + ": " + std::generic_category().message(errno));
  }
  return read_stream(stream.get(), path, most);
}

}  // namespace qwen
