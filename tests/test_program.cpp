#include <cstdlib>
#include <iostream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "qwen/locate.h"
#include "qwen/program.h"
#include "tests/program_run.h"
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

// A program with an option of every kind that takes numbers.
struct Numbers {
  int tokens = 16;
  std::optional<std::uint64_t> seed;
  double theta = 0.5;
  std::vector<int> ids;
  std::vector<std::string> types;
  int status = -1;
  std::string said;  // on stderr

  explicit Numbers(const std::vector<std::string>& arguments) {
    CLI::App app{"A program."};
    add_integer(app, "--tokens", tokens, 1, 64, "");
    add_integer(app, "--seed", seed, 0, UINT64_MAX, "");
    add_number(app, "--theta", theta, 1e-6, 2, "");
    add_integers(app, "--ids", ids, 0, 99, "");
    add_words(app, "--types", types, {"f32", "bf16"}, "");
    const ProgramRun run = run_with(app, arguments);
    status = run.status;
    said = run.said;
  }
};

void check_refused(const std::vector<std::string>& arguments, const std::string& message) {
  const Numbers run(arguments);
  CHECK(run.status == 2);
  CHECK(run.said == message + "; --help lists the options\n");
}

}  // namespace

TEST_CASE("program: numbers are decimal, whole, and within their limits") {
  const Numbers all({"--tokens", "010", "--seed", "18446744073709551615", "--theta", "1e-6"});
  CHECK(all.status == 0);
  CHECK(all.tokens == 10);
  CHECK(all.seed == UINT64_MAX);
  CHECK(all.theta == 1e-6);
  CHECK_FALSE(Numbers({}).seed);
  for (const std::string value : {"0", "65", "-1", "1.5", "1x", "0x10", "99999999999999999999"}) {
    check_refused({"--tokens", value},
                  "--tokens: found " + value + ", expected a whole number from 1 to 64");
  }
  check_refused({"--tokens", ""}, "--tokens: found nothing, expected a whole number from 1 to 64");
  for (const std::string value : {"-1", "18446744073709551616", "100000000000000000000000"}) {
    check_refused({"--seed", value}, "--seed: found " + value +
                                         ", expected a whole number from 0 to " +
                                         std::to_string(UINT64_MAX));
  }
  for (const std::string value : {"nan", "inf", "1,5", "0x1"}) {
    check_refused({"--theta", value},
                  "--theta: found " + value + ", expected a number such as 0.7");
  }
  check_refused({"--theta", "2.5"}, "--theta: found 2.5, expected a number from 1e-06 to 2");
}

TEST_CASE("program: of a list no element may be missing") {
  const Numbers lists({"--ids", "1,02", "3", "--types", "bf16,f32", "--types", "f32"});
  CHECK(lists.status == 0);
  CHECK(lists.ids == std::vector<int>{1, 2, 3});
  CHECK(lists.types == std::vector<std::string>{"bf16", "f32", "f32"});
  for (const std::string list : {"1,,2", "1,2,", ",1", ","}) {
    check_refused({"--ids", list}, "--ids: found " + list + ", of which an element is missing");
  }
  check_refused({"--types", "f32,,bf16"},
                "--types: found f32,,bf16, of which an element is missing");
  check_refused({"--ids", "1,100"}, "--ids: found 100, expected a whole number from 0 to 99");
  check_refused({"--types", "f32,f64"},
                "--types: found f64, expected one of f32, bf16, or several with commas between");
}

TEST_CASE("program: a message is one line, whatever it quotes") {
  check_refused({"--tokens", "1\n\x1b"},
                "--tokens: found 1\\n\\x1b, expected a whole number from 1 to 64");
}

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
  app.add_option("one", one);
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
