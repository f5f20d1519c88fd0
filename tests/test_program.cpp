#include <cstdlib>
#include <iostream>
#include <sstream>
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

TEST_CASE("program: whatever a message holds, it is one line") {
  std::ostringstream said;
  std::streambuf* const before = std::cerr.rdbuf(said.rdbuf());
  CLI::App app{"A program."};
  std::string name = "program";
  char* argv[] = {name.data(), nullptr};
  const int status =
      run_program(app, 1, argv, [] { throw std::runtime_error("cannot read a\nb: \x1b[31m"); });
  std::cerr.rdbuf(before);
  CHECK(status == 1);
  CHECK(said.str() == "cannot read a\\nb: \\x1b[31m\n");
}

TEST_CASE("locate: the environment chooses the model, else there is one in the sources") {
  setenv("QWEN_MODEL", "some/where", 1);
  CHECK(default_model() == "some/where");
  unsetenv("QWEN_MODEL");
  CHECK(std::filesystem::exists(default_model() + "/config.json"));
  CHECK(std::filesystem::path(default_model()).is_relative());
}
