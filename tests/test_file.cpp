#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "qwen/file.h"
#include "qwen/printable.h"
#include "tests/support.h"

using namespace qwen;
namespace fs = std::filesystem;

namespace {

std::string contents(const std::string& path) {
  return std::string(text(*map_file(path)));
}

int entries(const std::string& folder) {
  return static_cast<int>(std::distance(fs::directory_iterator(folder), {}));
}

}  // namespace

TEST_CASE("file: a written file is whole, takes the place of an older one, and leaves no other") {
  const TempDir folder;
  const std::string path = folder.write("a", "old");
  write_file(path, [](std::ostream& file) { file << "new and longer"; });
  CHECK(contents(path) == "new and longer");
  CHECK(entries(folder.path()) == 1);
}

TEST_CASE("file: neither a folder, a pipe nor a link to a device is replaced by a file") {
  const TempDir folder;
  const std::string link = folder.path() + "/link", pipe = folder.path() + "/pipe";
  fs::create_symlink("/dev/null", link);
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& path : {folder.path(), link, pipe}) {
    check_throws_with([&] { write_file(path, [](std::ostream&) {}); },
                      "cannot write " + path + ": it exists and is not a regular file");
  }
  CHECK(entries(folder.path()) == 2);
}

TEST_CASE("file: a link stays, and the file it names is written") {
  const TempDir folder;
  const std::string link = folder.path() + "/link", file = folder.write("a", "old");
  fs::create_symlink("a", link);
  write_file(link, [](std::ostream& out) { out << "new"; });
  CHECK(fs::is_symlink(link));
  CHECK(contents(file) == "new");
}

TEST_CASE("file: one that must not be written stays, even where its folder may be" *
          doctest::skip(geteuid() == 0)) {  // root may write everything
  const TempDir folder;
  const std::string path = folder.write("a", "old");
  fs::permissions(path, fs::perms::owner_read);
  check_throws_with([&] { write_file(path, [](std::ostream& out) { out << "new"; }); },
                    "cannot write " + path + ": Permission denied");
  CHECK(contents(path) == "old");
}

TEST_CASE("file: what cannot be written is said with the reason, and nothing stays behind") {
  const TempDir folder;
  check_throws_with([&] { write_file(folder.path() + "/no/file", [](std::ostream&) {}); },
                    "No such file or directory");
  const std::string path = folder.write("a", "old");
  check_throws_with(
      [&] { write_file(path, [](std::ostream& file) { file.setstate(std::ios::badbit); }); },
      "cannot write " + path);
  CHECK(contents(path) == "old");
  CHECK(entries(folder.path()) == 1);
}

TEST_CASE("file: a pipe is refused, not waited for") {
  const TempDir folder;
  const std::string pipe = folder.path() + "/pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  check_throws_with([&] { map_file(pipe); }, "cannot read " + pipe + ": not a regular file");
}

TEST_CASE("file: a name with a NUL, a newline or an escape is read or refused as a whole") {
  const TempDir folder;
  using namespace std::string_literals;
  folder.write("a", "text");
  check_throws_with([&] { map_file(folder.path() + "/a\0b"s); },
                    "/a\\x00b: a name cannot hold a NUL byte");
  check_throws_with([&] { map_file(folder.path() + "/a\n\x1b[1mb"); },
                    "/a\\n\\x1b[1mb: No such file or directory");
  CHECK(contents(folder.write("a\nb", "text")) == "text");
}

TEST_CASE("file: whether something is there") {
  const TempDir folder;
  CHECK(exists(folder.path()));
  CHECK_FALSE(exists(folder.path() + "/none"));
  CHECK_FALSE(exists(folder.write("a", "") + "/none"));
  fs::create_symlink("nowhere", folder.path() + "/dangling");
  CHECK_FALSE(exists(folder.path() + "/dangling"));
  check_throws_with([&] { exists(folder.path() + "/" + std::string(5000, 'a')); },
                    "File name too long");
}

TEST_CASE("printable: control characters are escaped, the rest stands as it is") {
  CHECK(on_one_line("a\nb\r\t\x1b[31m\x7f ü\"\\") == "a\\nb\\r\\t\\x1b[31m\\x7f ü\"\\");
  CHECK(on_one_line("\u0085\u009b\u00a0\u2028") == "\\x85\\x9b\u00a0\u2028");
  CHECK(on_one_line("\xC2\x1b") == "\xC2\\x1b");  // half a character, then an escape
  CHECK(in_quotes("a \"b\"\\\n") == "\"a \\\"b\\\"\\\\\\n\"");
  CHECK(in_quotes(std::string(80, 'a')) == "\"" + std::string(80, 'a') + "\"");
  CHECK(in_quotes(std::string(79, 'a') + "üb") == "\"" + std::string(79, 'a') + "…\"");
}
