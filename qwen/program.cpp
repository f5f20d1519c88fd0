#include "qwen/program.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <locale>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "qwen/locate.h"
#include "qwen/printable.h"

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

[[noreturn]] void refuse(const std::string& option, const std::string& found,
                         const std::string& expected) {
  throw CLI::ValidationError(
      option, "found " + (found.empty() ? "nothing" : found) + ", expected " + expected);
}

// The numbers of a message: 1e-06, 90, 4096.
std::string short_number(double value) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << value;
  return text.str();
}

// An option whose list is given in one text or in several, each with commas or without; `take` gets
// the elements.
CLI::Option* add_list(CLI::App& app, const std::string& name,
                      const std::function<void(const std::vector<std::string>&)>& take,
                      const std::string& description) {
  const auto split = [=](const std::vector<std::string>& texts) {
    std::vector<std::string> elements;
    for (const std::string& text : texts) {
      std::istringstream list(text + ",");
      for (std::string element; std::getline(list, element, ',');) {
        if (element.empty()) {
          throw CLI::ValidationError(name, "found " + text + ", of which an element is missing");
        }
        elements.push_back(element);
      }
    }
    take(elements);
  };
  return app.add_option_function<std::vector<std::string>>(name, split, description);
}

// False where --help was asked for, which is printed then.
bool parse(CLI::App& app, int argc, char** argv) {
  std::vector<std::string> arguments;  // the last one first, as CLI11 wants them
  for (int i = argc - 1; i > 0; --i) arguments.push_back(as_typed(argv[i]));
  try {
    app.name(argv[0]);
    app.parse(std::move(arguments));
    return true;
  } catch (const CLI::Success& help) {
    app.exit(help);
    return false;
  }
}

void expect_output_written() {
  std::cout.flush();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) || !std::cout) {
    throw std::runtime_error("the output cannot be written");
  }
}

}  // namespace

void add_model_option(CLI::App& app, std::string& model) {
  model = default_model();
  app.add_option("--model", model, "a directory, a .safetensors file or a .gguf file")
      ->capture_default_str();
}

std::uint64_t integer_of(const std::string& option, const std::string& text, std::uint64_t lowest,
                         std::uint64_t highest) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || read != end || value < lowest || value > highest) {
    refuse(option, text,
           "a whole number from " + std::to_string(lowest) + " to " + std::to_string(highest));
  }
  return value;
}

double number_of(const std::string& option, const std::string& text) {
  std::istringstream stream(text);
  stream.imbue(std::locale::classic());
  double value = 0;  // nan and inf are not read
  if (!(stream >> value) || stream.peek() != EOF) refuse(option, text, "a number such as 0.7");
  return value;
}

CLI::Option* add_number(CLI::App& app, const std::string& name, double& target, double lowest,
                        double highest, const std::string& description) {
  const std::string from = short_number(lowest), to = short_number(highest);
  const auto take = [=, &target](const std::string& text) {
    target = number_of(name, text);
    if (target < lowest || target > highest)
      refuse(name, text, "a number from " + from + " to " + to);
  };
  return app.add_option_function<std::string>(name, take, description)
      ->default_function([&target] { return short_number(target); })
      ->type_name("NUMBER in [" + from + " - " + to + "]");
}

CLI::Option* add_integers(CLI::App& app, const std::string& name, std::vector<int>& target,
                          int lowest, int highest, const std::string& description) {
  const auto take = [=, &target](const std::vector<std::string>& elements) {
    target.clear();
    for (const std::string& one : elements) {
      target.push_back(static_cast<int>(integer_of(name, one, lowest, highest)));
    }
  };
  return add_list(app, name, take, description)
      ->type_name("INT,… in [" + std::to_string(lowest) + " - " + std::to_string(highest) + "]");
}

CLI::Option* add_words(CLI::App& app, const std::string& name, std::vector<std::string>& target,
                       const std::vector<std::string>& words, const std::string& description) {
  std::string known;
  for (const std::string& word : words) known += (known.empty() ? "" : ", ") + word;
  const auto take = [=, &target](const std::vector<std::string>& elements) {
    for (const std::string& one : elements) {
      if (std::find(words.begin(), words.end(), one) == words.end()) {
        refuse(name, one, "one of " + known + ", or several with commas between");
      }
    }
    target = elements;
  };
  return add_list(app, name, take, description)->type_name("TEXT,… of " + known);
}

int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& work) {
  try {
    if (parse(app, argc, argv)) work();
    expect_output_written();
    return 0;
  } catch (const CLI::ParseError& error) {
    std::cerr << on_one_line(error.what()) << "; --help lists the options\n";
    return 2;
  } catch (const std::bad_alloc&) {
    std::cerr << "there is not enough memory\n";
  } catch (const std::exception& error) {
    std::cerr << on_one_line(error.what()) << '\n';
  }
  return 1;
}

}  // namespace qwen
