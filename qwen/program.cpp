#include "qwen/program.h"

#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <stdexcept>

#include "qwen/locate.h"
#include "qwen/printable.h"

namespace qwen {

void add_model_option(CLI::App& app, std::string& model) {
  model = default_model();
  app.add_option("--model", model, "a directory, a .safetensors file or a .gguf file")
      ->capture_default_str();
}

int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& work) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::cerr << on_one_line(error.what()) << "; --help lists the options\n";
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
    std::cerr << on_one_line(error.what()) << '\n';
    return 1;
  }
  return 0;
}

}  // namespace qwen
