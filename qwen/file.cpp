#include "qwen/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <system_error>

#include "qwen/printable.h"
#include "qwen/truncation.h"

namespace qwen {
namespace {

// Closes a descriptor at the end of a scope; a mapping outlives the descriptor it was made from.
struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) close(number);
  }
};

std::string cannot_read(const std::string& path, const std::string& why) {
  return "cannot read " + on_one_line(path) + ": " + why;
}

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw std::runtime_error(cannot_read(path, why));
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
  watch_mapping(data_, size_, cannot_read(path, "it became shorter while it was in use") + '\n');
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  forget_mapping(data_);
  munmap(const_cast<std::byte*>(data_), size_);
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

std::string unfinished_name(const std::string& path) {
  char name[16];
  std::snprintf(name, sizeof name, ".part-%08x", std::random_device()());
  return path + name;
}

namespace {

namespace fs = std::filesystem;

[[noreturn]] void cannot_write(const std::string& path, const std::string& why) {
  throw std::runtime_error("cannot write " + on_one_line(path) + ": " + why);
}

[[noreturn]] void cannot_write(const std::string& path) {
  cannot_write(path, std::generic_category().message(errno));
}

// The file that a path names in the end, whether it is there or not: where its links lead.
fs::path followed(fs::path path) {
  constexpr int kMostLinks = 40;  // as many as Linux follows
  std::error_code ignored;
  for (int i = 0; i < kMostLinks && fs::is_symlink(path, ignored); ++i) {
    path = path.parent_path() / fs::read_symlink(path, ignored);
  }
  return path;
}

// What takes the place of a file has its mode and, where the system allows it, its owner.
void keep_owner_and_mode(int file, const struct stat& old) {
  [[maybe_unused]] const int ignored = fchown(file, old.st_uid, old.st_gid);
  fchmod(file, old.st_mode & 0777);
}

// What is written before it takes the place of `path`: a neighbour, gone at the end of the scope
// unless it has its other name by then.
class Unfinished {
 public:
  explicit Unfinished(const std::string& path)
      : replaces_(replaceable(path)),
        target_(followed(path).string()),
        name_(unfinished_name(target_)),
        // Of a private file nobody sees even the beginning.
        made_{
            open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, replaces_ ? 0600 : 0666)} {
    if (made_.number < 0) cannot_write(path);
  }
  ~Unfinished() { unlink(name_.c_str()); }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  const std::string& name() const { return name_; }

  // 0, or -1 with errno set, as rename.
  int finish() {
    if (replaces_) keep_owner_and_mode(made_.number, old_);
    return std::rename(name_.c_str(), target_.c_str());
  }

 private:
  // Whether there is a file to be replaced, which may be.
  bool replaceable(const std::string& path) {
    if (path.find('\0') != path.npos) cannot_write(path, "a name cannot hold a NUL byte");
    const bool exists = stat(path.c_str(), &old_) == 0;
    if (!exists && errno != ENOENT) cannot_write(path);
    if (exists && !S_ISREG(old_.st_mode)) cannot_write(path, "it exists and is not a regular file");
    // A new file can take the place of one that must not be written.
    if (exists && access(path.c_str(), W_OK) != 0) cannot_write(path);
    return exists;
  }

  struct stat old_ = {};
  const bool replaces_;
  const std::string target_, name_;
  const Descriptor made_;
};

}  // namespace

void expect_writable(const std::string& path) {
  const Unfinished nothing(path);
}

void write_file(const std::string& path, const std::function<void(std::ostream&)>& write) {
  Unfinished unfinished(path);
  errno = 0;
  std::ofstream file(unfinished.name(), std::ios::binary);
  if (file) write(file);
  file.close();
  if (!file || unfinished.finish() != 0) cannot_write(path);
}

std::string_view text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

}  // namespace qwen
