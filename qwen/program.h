// What all programs have in common: their options, and how they end.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

namespace qwen {

// Adds `--model PATH`, which is default_model() where it is not given.
void add_model_option(CLI::App& app, std::string& model);

// ---- options that take numbers or lists. CLI11 itself takes 010 for 8, 2^64 for 2^64 - 1, nan for
// a number within any limits, and `1,,2` for two numbers. ----

// What the text of an option says, all of it: a whole number in decimal digits, or a number with a
// decimal point, whatever the locale says. CLI::ValidationError that names the option, else.
std::uint64_t integer_of(const std::string& option, const std::string& text, std::uint64_t lowest,
                         std::uint64_t highest);
double number_of(const std::string& option, const std::string& text);

// An option for a whole number; `target` is an integer, or an optional one.
template <class Target>
CLI::Option* add_integer(CLI::App& app, const std::string& name, Target& target,
                         std::uint64_t lowest, std::uint64_t highest,
                         const std::string& description) {
  const auto take = [=, &target](const std::string& text) {
    target = integer_of(name, text, lowest, highest);
  };
  CLI::Option* option = app.add_option_function<std::string>(name, take, description);
  if constexpr (std::is_integral_v<Target>) {
    option->default_function([&target] { return std::to_string(target); });
  }
  return option->type_name("INT in [" + std::to_string(lowest) + " - " + std::to_string(highest) +
                           "]");
}

// An option for a number.
CLI::Option* add_number(CLI::App& app, const std::string& name, double& target, double lowest,
                        double highest, const std::string& description);

// Options for lists whose elements stand between commas: whole numbers, or some of `words`.
CLI::Option* add_integers(CLI::App& app, const std::string& name, std::vector<int>& target,
                          int lowest, int highest, const std::string& description);
CLI::Option* add_words(CLI::App& app, const std::string& name, std::vector<std::string>& target,
                       const std::vector<std::string>& words, const std::string& description);

// Reads the options, then does the work. Returns the exit status: 0; 1 after an exception, whose
// message goes to stderr on one line, and where the output cannot be written; 2 for options that
// are wrong. Use as the last line of main. On a CPU without an instruction that the program has,
// that is said and the exit status 1.
int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& work);

}  // namespace qwen
