#include "qwen/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "qwen/interrupt.h"

#if defined(__APPLE__)
#include <mach-o/dyld.h>
#endif

extern char** environ;

namespace qwen {
namespace {

using File = std::unique_ptr<FILE, int (*)(FILE*)>;

std::string reason() {
  return std::generic_category().message(errno);
}

// A file without a name: it is gone with the last who has it open, however that one ends.
File unnamed_file() {
  const char* asked = std::getenv("TMPDIR");
  const std::string folder = asked != nullptr && *asked != '\0' ? asked : "/tmp";
  std::string path = folder + "/qwen-XXXXXX";
  const int number = mkstemp(path.data());
  if (number < 0) {
    throw std::runtime_error("cannot write to " + folder + ", the folder for temporary files: " +
                             reason() + "; $TMPDIR names another");
  }
  unlink(path.c_str());
  return File(fdopen(number, "r+"), std::fclose);
}

std::string contents(FILE* file) {
  std::rewind(file);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  return text;
}

// The last line that is not empty.
std::string last_line(std::string text) {
  text.erase(text.find_last_not_of('\n') + 1);
  return text.substr(text.rfind('\n') + 1);
}

// A pipe that no program started from here has, but for the end that it is given.
struct Pipe {
  int ends[2];
  Pipe() {
    if (pipe(ends) != 0) throw std::runtime_error("cannot make a pipe: " + reason());
    for (const int end : ends) fcntl(end, F_SETFD, FD_CLOEXEC);
  }
  ~Pipe() {
    for (const int end : ends) close(end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
};

pid_t start(const std::vector<std::string>& command, int in, FILE* out, FILE* errors) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, fileno(out), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, fileno(errors), STDERR_FILENO);
  pid_t process = 0;
  const int error = posix_spawnp(&process, argv[0], &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    throw std::runtime_error("cannot start " + command[0] + ": " +
                             std::generic_category().message(error));
  }
  return process;
}

// Its exit status, in the form of waitpid. Looks ten times a second whether there was a Ctrl-C:
// so seldom that nothing is to be seen of it in what the process measures.
int wait_for(pid_t process) {
  int status = 0;
  while (waitpid(process, &status, WNOHANG) == 0) {
    if (interrupted()) {
      kill(process, SIGTERM);
      waitpid(process, &status, 0);
      throw Interrupted{};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  if (interrupted()) throw Interrupted{};  // it got the Ctrl-C, too
  return status;
}

}  // namespace

std::string own_path() {
#if defined(__APPLE__)
  std::string path(4096, '\0');
  std::uint32_t size = static_cast<std::uint32_t>(path.size());
  if (_NSGetExecutablePath(path.data(), &size) != 0) {
    throw std::runtime_error("the path of this program is too long");
  }
  return path.c_str();
#else
  return std::filesystem::read_symlink("/proc/self/exe").string();
#endif
}

std::string run_process(const std::vector<std::string>& command) {
  const File out = unnamed_file(), errors = unnamed_file();
  const Pipe life;  // ours to hold: however this program ends, it is closed then
  const int status = wait_for(start(command, life.ends[0], out.get(), errors.get()));
  if (status == 0) return contents(out.get());
  std::string what = last_line(contents(errors.get()));
  if (WIFSIGNALED(status)) what = "ended by signal " + std::to_string(WTERMSIG(status));
  if (what.empty()) what = "exit status " + std::to_string(WEXITSTATUS(status));
  throw std::runtime_error(command[0] + ": " + what);
}

void end_with_parent() {
  std::thread([] {
    char ignored;
    ssize_t bytes;
    do {
      bytes = read(STDIN_FILENO, &ignored, 1);
    } while (bytes > 0 || (bytes < 0 && errno == EINTR));
    _exit(1);
  }).detach();
}

}  // namespace qwen
