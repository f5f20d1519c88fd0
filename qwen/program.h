// What all programs have in common: their options, and how they end.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

namespace qwen {

// Adds `--model PATH`, which is default_model() where it is not given.
void add_model_option(CLI::App& app, std::string& model);

// Reads the options, then does the work. Returns the exit status: 0; 1 after an exception, whose
// message goes to stderr on one line; 2 for options that are wrong. Use as the last line of main.
// On a CPU without an instruction that the program has, that is said and the exit status 1.
int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& work);

}  // namespace qwen
