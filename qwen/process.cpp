#include "qwen/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
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

// The last line that is not empty.
std::string last_line(FILE* file) {
  std::rewind(file);
  std::string last, line;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) {
    if (c != '\n') {
      line += static_cast<char>(c);
      continue;
    }
    if (!line.empty()) last = line;
    line.clear();
  }
  return line.empty() ? last : line;
}

pid_t start(const std::vector<std::string>& command, FILE* errors) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
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

void run_process(const std::vector<std::string>& command) {
  const File errors(std::tmpfile(), std::fclose);
  if (!errors) throw std::runtime_error("cannot make a temporary file");
  const int status = wait_for(start(command, errors.get()));
  if (status == 0) return;
  std::string what = last_line(errors.get());
  if (WIFSIGNALED(status)) what = "ended by signal " + std::to_string(WTERMSIG(status));
  if (what.empty()) what = "exit status " + std::to_string(WEXITSTATUS(status));
  throw std::runtime_error(command[0] + ": " + what);
}

}  // namespace qwen
