#include "qwen/program.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "qwen/locate.h"

namespace qwen {
namespace {

// What is compiled for this machine's CPU ends with SIGILL on one that lacks an instruction of it.
void say_other_cpu(int) {
  constexpr std::string_view text =
      "this program was built for another CPU: an instruction is missing here; remove its build "
      "folder and build it on this machine, or with cmake --preset portable\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
  _exit(1);
}

// Runs before the constructors of C++ objects: they may have such instructions, too.
[[gnu::constructor(101)]] void watch_for_other_cpu() {
  std::signal(SIGILL, say_other_cpu);
}

// CLI11 from 2.5 on takes [[11]] for a way to write [1], and [1,2] for a list where an option takes
// several values. In that writing itself, what stands in brackets stays the text that was typed.
std::string as_typed(const std::string& argument) {
  constexpr bool has_that_writing = CLI11_VERSION_MAJOR > 2 || CLI11_VERSION_MINOR >= 5;
  const std::size_t begin = argument.starts_with("--") ? argument.find('=') + 1 : 0;
  const std::string_view value = std::string_view(argument).substr(begin);
  if (!has_that_writing || !value.starts_with('[') || !value.ends_with(']')) return argument;
  std::string escaped = argument.substr(0, begin) + "[[";
  for (const char c : value.substr(1, value.size() - 2)) escaped.append(2, c);
  return escaped + "]]";
}

}  // namespace

void add_model_option(CLI::App& app, std::string& model) {
  model = default_model();
  app.add_option("--model", model, "a directory, a .safetensors file or a .gguf file")
      ->capture_default_str();
}

int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& work) {
  std::vector<std::string> arguments;  // the last one first, as CLI11 wants them
  for (int i = argc - 1; i > 0; --i) arguments.push_back(as_typed(argv[i]));
  try {
    app.name(argv[0]);
    app.parse(std::move(arguments));
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::cerr << error.what() << "; --help lists the options\n";
    return 2;
  }
  try {
    work();
    std::cout.flush();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) || !std::cout) {
      throw std::runtime_error("the output cannot be written");
    }
  } catch (const std::bad_alloc&) {
    std::cerr << "there is not enough memory\n";
    return 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}

}  // namespace qwen
