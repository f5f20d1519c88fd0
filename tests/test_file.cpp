#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "qwen/file.h"
#include "qwen/input.h"
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

struct Ended {
  int status;  // as waitpid has it
  std::string errors;
};

// What becomes of a process that does this.
Ended process_that(const std::function<void()>& work) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t process = fork();
  if (process == 0) {
    dup2(ends[1], STDERR_FILENO);
    work();
    _exit(0);
  }
  close(ends[1]);
  Ended ended{};
  char byte;
  while (read(ends[0], &byte, 1) == 1) ended.errors += byte;
  close(ends[0]);
  waitpid(process, &ended.status, 0);
  return ended;
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

TEST_CASE("file: through links to what is not there yet it is made where they lead") {
  const TempDir folder;
  const std::string first = folder.path() + "/first", lost = folder.path() + "/lost";
  fs::create_directory(folder.path() + "/below");
  fs::create_symlink("below/second", first);
  fs::create_symlink("../made", folder.path() + "/below/second");
  write_file(first, [](std::ostream& out) { out << "new"; });
  CHECK(fs::is_symlink(first));
  CHECK(contents(folder.path() + "/made") == "new");
  fs::create_symlink("no/such/folder/x", lost);
  check_throws_with([&] { write_file(lost, [](std::ostream&) {}); }, "No such file or directory");
  fs::create_symlink("loop", folder.path() + "/loop");
  check_throws_with([&] { write_file(folder.path() + "/loop", [](std::ostream&) {}); }, "loop: ");
  CHECK(entries(folder.path()) == 5);
}

TEST_CASE(
    "file: what takes a file's place can be read by the same people; a new one by the usual") {
  const TempDir folder;
  const std::string path = folder.write("a", "old"), fresh = folder.path() + "/b";
  for (const fs::perms mode : {fs::perms(0600), fs::perms(0664), fs::perms(0755)}) {
    fs::permissions(path, mode);
    write_file(path, [&](std::ostream& out) {
      for (const auto& entry : fs::directory_iterator(folder.path())) {
        const bool is_open = (entry.status().permissions() & fs::perms(0077)) != fs::perms::none;
        CHECK((entry.path() == path || !is_open));  // nor while it is written
      }
      out << "new";
    });
    CHECK(fs::status(path).permissions() == mode);
  }
  const mode_t mask = umask(0027);
  write_file(fresh, [](std::ostream& out) { out << "new"; });
  umask(mask);
  CHECK(fs::status(fresh).permissions() == fs::perms(0640));
}

TEST_CASE("file: what throws while it writes leaves nothing behind") {
  const TempDir folder;
  const std::string path = folder.write("a", "old");
  check_throws_with(
      [&] {
        write_file(path, [](std::ostream& file) {
          file << "half";
          throw std::runtime_error("no more");
        });
      },
      "no more");
  CHECK(contents(path) == "old");
  CHECK(entries(folder.path()) == 1);
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

TEST_CASE("file: whether one can be written is known before, and changes nothing") {
  const TempDir folder;
  const std::string path = folder.write("a", "old");
  expect_writable(path);
  expect_writable(folder.path() + "/new");
  CHECK(contents(path) == "old");
  CHECK(entries(folder.path()) == 1);
  check_throws_with([&] { expect_writable(folder.path() + "/no/file"); },
                    "No such file or directory");
  check_throws_with([&] { expect_writable(folder.path()); }, "not a regular file");
}

TEST_CASE("file: a name with a NUL is not written, and what its beginning names stays") {
  const TempDir folder;
  const std::string path = folder.write("a", "old");
  check_throws_with(
      [&] { write_file(path + std::string("\0b", 2), [](std::ostream& file) { file << "new"; }); },
      "a name cannot hold a NUL byte");
  CHECK(contents(path) == "old");
  CHECK(entries(folder.path()) == 1);
}

TEST_CASE("file: a pipe is refused, not waited for") {
  const TempDir folder;
  const std::string pipe = folder.path() + "/pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  check_throws_with([&] { map_file(pipe); }, "cannot read " + pipe + ": not a regular file");
}

TEST_CASE("input: a file, or what a pipe holds, up to a limit") {
  const TempDir folder;
  const std::string file = folder.write("a", "three"), pipe = folder.path() + "/pipe";
  CHECK(name_of_input("-") == "stdin");
  CHECK(name_of_input(file) == file);
  CHECK(read_input(file) == "three");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const auto through_pipe = [&](const std::string& text, std::size_t most) {
    const auto writer = std::async(std::launch::async, [&] { std::ofstream(pipe) << text; });
    return read_input(pipe, most);
  };
  CHECK(through_pipe("through a pipe", 100) == "through a pipe");
  check_throws_with([&] { through_pipe("too long", 7); },
                    "cannot read " + pipe + ": it goes on after 7 bytes; give the name of a file");
  check_throws_with([] { read_input("/dev/zero", 1000); }, "it goes on after 1000 bytes");
  check_throws_with([&] { read_input(folder.path()); }, "not a regular file");
  check_throws_with([] { read_input("no/such"); }, "cannot read no/such: No such file");
}

TEST_CASE("file: one that becomes shorter while it is mapped ends the program with a line") {
  const TempDir folder;
  const std::string bytes(1 << 20, 'x');
  const std::string first = folder.write("first", bytes), second = folder.write("second", bytes);
  const Ended ended = process_that([&] {
    const auto a = map_file(first), b = map_file(second);
    fs::resize_file(second, 100);
    volatile char last = text(*a).back();
    last = text(*b).back();
    (void)last;
  });
  CHECK(WIFEXITED(ended.status));
  CHECK(WEXITSTATUS(ended.status) == 1);
  CHECK(ended.errors == "cannot read " + second + ": it became shorter while it was in use\n");
}

TEST_CASE("file: any other SIGBUS ends the program as if nothing was mapped") {
  const TempDir folder;
  const Ended ended = process_that([&] {
    const auto file = map_file(folder.write("a", "x"));
    raise(SIGBUS);
  });
  CHECK(ended.status != 0);
  CHECK(ended.errors.find("cannot read") == std::string::npos);
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
