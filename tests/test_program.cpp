#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "qwen/locate.h"
#include "qwen/program.h"
#include "tests/support.h"

using namespace qwen;

namespace {

// Exit status of a program with those arguments, whose work is to throw where told so.
int run(std::vector<std::string> arguments, bool throws, std::string& model) {
  CLI::App app{"A program."};
  add_model_option(app, model);
  arguments.insert(arguments.begin(), "program");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return run_program(app, static_cast<int>(argv.size()), argv.data(), [&] {
    if (throws) throw std::runtime_error("as it should be");
  });
}

}  // namespace

TEST_CASE("program: the exit status is 0, 1 for a failure, 2 for wrong usage") {
  std::string model;
  CHECK(run({"--model", "x"}, false, model) == 0);
  CHECK(model == "x");
  CHECK(run({}, true, model) == 1);
  CHECK(run({"--none"}, false, model) == 2);
  CHECK(run({"--model"}, false, model) == 2);
  CHECK(run({"--help"}, true, model) == 0);  // the work is not done
}

TEST_CASE("program: a text in brackets is no list, whichever CLI11 reads it") {
  CLI::App app{"A program."};
  std::string one;
  std::vector<std::string> several, expected;
  app.add_option("text", one);
  app.add_option("--text", several)->allow_extra_args(false);
  std::vector<std::string> arguments{"program", "[[aa]]"};
  for (const std::string text : {"[1,2]", "[a]", "[]", "[[11]]", "[[]]", "[", "x=[1]"}) {
    arguments.insert(arguments.end(), {"--text", text, "--text=" + text});
    expected.insert(expected.end(), {text, text});
  }
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  CHECK(run_program(app, static_cast<int>(argv.size()), argv.data(), [] {}) == 0);
  CHECK(several == expected);
  CHECK(one == "[[aa]]");
}

TEST_CASE("locate: the environment chooses the model, else there is one in the sources") {
  setenv("QWEN_MODEL", "some/where", 1);
  CHECK(default_model() == "some/where");
  unsetenv("QWEN_MODEL");
  CHECK(std::filesystem::exists(default_model() + "/config.json"));
  CHECK(std::filesystem::path(default_model()).is_relative());
}
