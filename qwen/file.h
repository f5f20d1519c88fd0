// A file as memory: the system reads a page of it when a byte of that page is first touched.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>

namespace qwen {

// Read-only bytes of a file. Whoever holds the pointer keeps the mapping.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  const std::byte* data() const { return data_; }  // nullptr for an empty file
  std::size_t size() const { return size_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Maps a whole file. std::runtime_error with path and reason when it cannot be read.
std::shared_ptr<const MappedFile> map_file(const std::string& path);

// Whether there is anything of that name. std::runtime_error where that cannot be told.
bool exists(const std::string& path);

// The bytes as characters, for parsers of text.
std::string_view text(const MappedFile& file);

// A name for what will be `path` when it is finished: beside it, and nobody can foresee it.
std::string unfinished_name(const std::string& path);

// Writes a file so that `path` holds the old contents or all of the new, never half of them:
// `write` fills a neighbour with a name of its own, which then takes the place, with the owner and
// the mode of the old one. A link stays, and the file it leads to is written. std::runtime_error
// with path and reason when that fails or `path` is not a regular file; nothing is left behind
// then, nor where `write` throws.
void write_file(const std::string& path, const std::function<void(std::ostream&)>& write);

// Throws what write_file would, before the hours whose result it is to take; nothing is changed.
void expect_writable(const std::string& path);

}  // namespace qwen
