#include <cstdlib>
#include <filesystem>

#include "qwen/speed_options.h"
#include "tests/support.h"

using namespace qwen;

namespace {

// The options that these arguments give; `status` is what the program ends with.
SpeedOptions parsed(std::vector<std::string> arguments, int& status) {
  CLI::App app{"A program."};
  SpeedOptions options;
  add_speed_options(app, options, {"roofline", "threads", "task"});
  arguments.insert(arguments.begin(), "program");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  status = run_program(app, static_cast<int>(argv.size()), argv.data(), [] {});
  return options;
}

SpeedOptions parsed(const std::vector<std::string>& arguments) {
  int status = 1;
  const SpeedOptions options = parsed(arguments, status);
  CHECK(status == 0);
  return options;
}

int status_of(const std::vector<std::string>& arguments) {
  int status = 0;
  parsed(arguments, status);
  return status;
}

}  // namespace

TEST_CASE("speed options: several models, dtypes and teams make a matrix") {
  const SpeedOptions options = parsed({"--part", "matrix", "--model", "a", "b", "--dtype",
                                       "f32,bf16", "--threads", "1,2,4", "--runs", "10"});
  CHECK(options.models == std::vector<std::string>{"a", "b"});
  CHECK(options.dtypes == std::vector<std::string>{"f32", "bf16"});
  CHECK(options.threads == std::vector<int>{1, 2, 4});
  CHECK(*options.runs == 10);
}

TEST_CASE("speed options: a folder may have brackets in its name") {
  const SpeedOptions options =
      parsed({"--part", "matrix", "--model", "[m]", "[a,b]", "--model", "[[cc]]"});
  CHECK(options.models == std::vector<std::string>{"[m]", "[a,b]", "[[cc]]"});
}

TEST_CASE("speed options: what makes no sense is wrong usage") {
  CHECK(status_of({"--dtype", "f32,bf16"}) == 2);
  CHECK(status_of({"--threads", "1,2", "--part", "threads"}) == 2);
  CHECK(status_of({"--model", "a", "b"}) == 2);
  CHECK(status_of({"--part", "matrix,threads"}) == 2);
  CHECK(status_of({"--part", "none"}) == 2);
  CHECK(status_of({"--dtype", "q4_9"}) == 2);
  CHECK(status_of({"--device", "cuda"}) == 2);
  CHECK(status_of({"--prompt", "0"}) == 2);
  CHECK(status_of({"--device", "cpu,cpu"}) == 2);
  CHECK(status_of({"--runs", "0"}) == 0);  // run 0 alone
}

TEST_CASE("speed options: what would change nothing is wrong usage") {
  const std::vector<std::vector<std::string>> others = {{"--part", "roofline"},
                                                        {"--model", "a"},
                                                        {"--dtype", "f32"},
                                                        {"--device", "cpu"},
                                                        {"--threads", "1"},
                                                        {"--prompt", "1"},
                                                        {"--steps", "1"},
                                                        {"--runs", "1"},
                                                        {"--json", "a"},
                                                        {"--report", "a"},
                                                        {"--full"},
                                                        {"--book"},
                                                        {"--child"}};
  for (std::vector<std::string> arguments : others) {
    CAPTURE(arguments[0]);
    arguments.push_back("--counts");
    CHECK(status_of(arguments) == 2);
  }
  CHECK(status_of({"--counts"}) == 0);
  CHECK(status_of({"--part", "matrix", "--full"}) == 2);
  CHECK(status_of({"--part", "matrix", "--book"}) == 2);
  CHECK(status_of({"--child"}) == 2);
  CHECK(status_of({"--child", "--part", "task"}) == 0);
  CHECK(status_of({"--child", "--part", "task", "--json", "a"}) == 2);
}

TEST_CASE("speed options: the quick run's measure, that of --full, and what is asked for") {
  const std::string model = "checkpoints/tiny";
  const Speed quick = prepare_speed(parsed({"--model", model}));
  CHECK(quick.source.name == "tiny");
  CHECK(quick.prompt == 203);
  CHECK(quick.steps == 32);
  CHECK(quick.rounds.count == 3);
  CHECK(quick.source.stored == DType::F32);
  const Speed full = prepare_speed(parsed({"--model", model, "--full"}));
  CHECK(full.steps == 128);
  CHECK(full.rounds.count == 10);
  const Speed asked =
      prepare_speed(parsed({"--model", model, "--full", "--prompt", "25", "--steps", "31", "--runs",
                            "4", "--dtype", "bf16", "--threads", "3"}));
  CHECK(asked.prompt == 25);
  CHECK(asked.steps == 31);
  CHECK(asked.rounds.count == 4);
  CHECK(asked.threads == 3);
  CHECK(asked.source.stored == DType::BF16);
}

TEST_CASE("speed: a model is a path, the name of a shape, or what the hub's cache holds") {
  const TempDir cache;
  setenv("HF_HUB_CACHE", cache.path().c_str(), 1);
  const ModelSource random = choose_model("smollm2-135m");
  CHECK(random.path.empty());
  CHECK(random.name == "smollm2-135m (random weights)");
  CHECK(random.config.hidden_size == 576);
  CHECK(choose_model("checkpoints/tiny/").name == "tiny");
  CHECK(choose_model("").path.empty());  // the cache is empty
  check_throws_with([] { choose_model("no/such/model"); }, "no/such/model");

  namespace fs = std::filesystem;
  const fs::path snapshot = cache.path() + "/models--Qwen--Qwen3.5-0.8B/snapshots/0123abcd";
  fs::create_directories(snapshot.parent_path());
  fs::copy("checkpoints/tiny", snapshot);
  const ModelSource found = choose_model("");
  CHECK(found.path == snapshot.string());
  CHECK(found.name == "Qwen3.5-0.8B");
  unsetenv("HF_HUB_CACHE");
}

TEST_CASE("speed options: the environment names a model where no option does") {
  setenv("QWEN_MODEL", "some/where", 1);
  CHECK(chosen_model(parsed({})) == "some/where");
  CHECK(chosen_model(parsed({"--model", "a"})) == "a");
  unsetenv("QWEN_MODEL");
  CHECK(chosen_model(parsed({})) == "");
}
