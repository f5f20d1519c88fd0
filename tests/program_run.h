// A program's options read as run_program reads them, for tests.
#pragma once

#include <CLI/CLI.hpp>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "qwen/program.h"

namespace qwen {

struct ProgramRun {
  int status;        // its exit status
  std::string said;  // on stderr
};

// Runs a program that does nothing, with these arguments behind its name.
inline ProgramRun run_with(CLI::App& app, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "program");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  std::ostringstream stream;
  std::streambuf* const before = std::cerr.rdbuf(stream.rdbuf());
  const int status = run_program(app, static_cast<int>(argv.size()), argv.data(), [] {});
  std::cerr.rdbuf(before);
  return {status, stream.str()};
}

}  // namespace qwen
