#include "qwen/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <system_error>

#include "qwen/printable.h"

namespace qwen {
namespace {

// Closes a descriptor at the end of a scope; a mapping outlives the descriptor it was made from.
struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) close(number);
  }
};

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw std::runtime_error("cannot read " + on_one_line(path) + ": " + why);
}

[[noreturn]] void fail_with_errno(const std::string& path) {
  fail(path, std::generic_category().message(errno));
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  if (path.find('\0') != path.npos) fail(path, "a name cannot hold a NUL byte");
  // O_NONBLOCK: a pipe without a writer is refused below, not waited for.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.number < 0) fail_with_errno(path);
  struct stat status;
  if (fstat(file.number, &status) != 0) fail_with_errno(path);
  if (!S_ISREG(status.st_mode)) fail(path, "not a regular file");
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;  // mmap refuses an empty range
  void* address = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.number, 0);
  if (address == MAP_FAILED) fail_with_errno(path);
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

std::shared_ptr<const MappedFile> map_file(const std::string& path) {
  return std::make_shared<const MappedFile>(path);
}

bool exists(const std::string& path) {
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  if (type == std::filesystem::file_type::none) fail(path, error.message());
  return type != std::filesystem::file_type::not_found;
}

void write_file(const std::string& path, const std::function<void(std::ostream&)>& write) {
  namespace fs = std::filesystem;
  std::error_code error;
  const auto cannot = [&](const std::string& why) {
    return std::runtime_error("cannot write " + on_one_line(path) + ": " + why);
  };
  std::string target = path;
  if (fs::exists(path, error)) {
    if (!fs::is_regular_file(path, error)) throw cannot("it exists and is not a regular file");
    // A new file can take the place of one that must not be written, and of a link to another.
    if (access(path.c_str(), W_OK) != 0) throw cannot(std::generic_category().message(errno));
    target = fs::canonical(path).string();
  }
  const std::string unfinished = target + ".part-" + std::to_string(getpid());
  errno = 0;
  std::ofstream file(unfinished, std::ios::binary);
  if (file) write(file);
  file.close();
  if (file) fs::rename(unfinished, target, error);
  if (file && !error) return;
  const std::string why = error ? error.message() : std::generic_category().message(errno);
  fs::remove(unfinished, error);
  throw cannot(why);
}

std::string_view text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

}  // namespace qwen
