#include <clocale>
#include <locale>

#include "qwen/sampling_config.h"
#include "qwen/sampling_options.h"
#include "tests/program_run.h"
#include "tests/support.h"

using namespace qwen;

namespace {

// Runs a program with those arguments, whose only work is to note what they say.
struct Run {
  SamplingOptions options;
  int status = -1;
  std::string said;  // on stderr

  explicit Run(const std::vector<std::string>& arguments) {
    CLI::App app{"A program."};
    add_sampling_options(app, options);
    const ProgramRun run = run_with(app, arguments);
    status = run.status;
    said = run.said;
  }
};

void check_refused(const std::string& option, const std::string& value, const std::string& part) {
  const Run run({option, value});
  CAPTURE(option);
  CAPTURE(value);
  CHECK(run.status == 2);
  CHECK_MESSAGE(run.said.find(part) != std::string::npos, run.said);
  CHECK_MESSAGE(run.said.find('\n') == run.said.size() - 1, run.said);  // one line
}

// A locale that writes 0,7 for 0.7.
struct DecimalComma : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
};

std::string folder_with(const TempDir& folder, const std::string& generation_config) {
  folder.write("generation_config.json", generation_config);
  return folder.path();
}

}  // namespace

TEST_CASE("sampling options: each sets its field, none leaves the checkpoint's recommendation") {
  Sampling recommended{.temperature = 0.6, .top_k = 20, .top_p = 0.95, .min_p = 0.01};
  const Sampling none = chosen_sampling(Run({}).options, recommended);
  CHECK(none.temperature == 0.6);
  CHECK(none.top_k == 20);
  CHECK(none.top_p == 0.95);
  CHECK(none.min_p == 0.01);
  CHECK(none.seed == 0);

  const Run run({"--temperature", "0.7", "--top-k", "5", "--top-p", "0.8", "--min-p", "0.1",
                 "--repetition-penalty", "1.3", "--presence-penalty", "-0.5", "--frequency-penalty",
                 "0.25", "--seed", "18446744073709551615"});
  CHECK_MESSAGE(run.status == 0, run.said);
  const Sampling all = chosen_sampling(run.options, recommended);
  CHECK(all.temperature == 0.7);
  CHECK(all.top_k == 5);
  CHECK(all.top_p == 0.8);
  CHECK(all.min_p == 0.1);
  CHECK(all.repetition_penalty == 1.3);
  CHECK(all.presence_penalty == -0.5);
  CHECK(all.frequency_penalty == 0.25);
  CHECK(all.seed == 18446744073709551615u);
}

TEST_CASE("sampling options: greedy is temperature 0, and not both") {
  const Sampling recommended{.temperature = 0.6};
  CHECK(chosen_sampling(Run({"--greedy"}).options, recommended).temperature == 0);
  CHECK(chosen_sampling(Run({"--greedy", "--top-k", "5"}).options, recommended).temperature == 0);
  const Run both({"--greedy", "--temperature", "1"});
  CHECK(both.status == 2);
  CHECK(both.said.find("--greedy") != std::string::npos);
}

TEST_CASE("sampling options: who restricts the choice asks to choose") {
  CHECK(chosen_sampling(Run({"--top-k", "5"}).options, {}).temperature == 1);
  CHECK(chosen_sampling(Run({"--top-p", "0.9"}).options, {}).temperature == 1);
  CHECK(chosen_sampling(Run({"--min-p", "0.1"}).options, {}).temperature == 1);
  CHECK(chosen_sampling(Run({"--top-k", "5"}).options, {.temperature = 0.6}).temperature == 0.6);
  CHECK(chosen_sampling(Run({"--top-k", "5", "--temperature", "0"}).options, {}).temperature == 0);
  CHECK(chosen_sampling(Run({"--seed", "5"}).options, {}).temperature == 0);
  CHECK(chosen_sampling(Run({"--repetition-penalty", "2"}).options, {}).temperature == 0);
}

TEST_CASE("sampling options: the smallest temperatures are numbers") {
  CHECK(Run({"--temperature", "1e-8"}).options.temperature == 1e-8);
  CHECK(Run({"--temperature", "1e-45"}).options.temperature == 1e-45);
}

TEST_CASE("sampling options: what no distribution follows from is wrong usage, on one line") {
  for (const std::string option : {"--temperature", "--top-p", "--min-p", "--repetition-penalty",
                                   "--presence-penalty", "--frequency-penalty"}) {
    check_refused(option, "", option + ": found nothing, expected a number");
    for (const std::string value : {"nan", "inf", "-inf", "1e999", "0,7", "0.7x", "x"}) {
      check_refused(option, value, option + ": found " + value + ", expected a number");
    }
  }
  check_refused("--temperature", "-0.1", "temperature is -0.1, expected a number from 0 (greedy)");
  check_refused("--temperature", "1e300",
                "temperature is 1e+300, expected a number from 0 (greedy) to 3.4e+38");
  check_refused("--top-p", "0", "top_p is 0, expected a number above 0, up to 1 (all)");
  check_refused("--top-p", "1.01", "top_p is 1.01, expected a number above 0, up to 1 (all)");
  check_refused("--min-p", "-0.1", "min_p is -0.1, expected a number from 0 (all) to 1");
  check_refused("--min-p", "1.1", "min_p is 1.1, expected a number from 0 (all) to 1");
  check_refused("--repetition-penalty", "0",
                "repetition_penalty is 0, expected a number from 0.000001");
  check_refused("--presence-penalty", "1e39", "presence_penalty is 1e+39, expected a number");
  check_refused("--frequency-penalty", "-1e39", "frequency_penalty is -1e+39, expected a number");
  for (const std::string value : {"-1", "1.5", "99999999999"}) {
    check_refused("--top-k", value,
                  "--top-k: found " + value + ", expected a whole number from 0 to 2147483647");
  }
  check_refused("--seed", "18446744073709551616",
                "--seed: found 18446744073709551616, expected a whole number from 0 to");
}

TEST_CASE("sampling options: a locale with decimal commas changes nothing") {
  const std::locale before = std::locale::global({std::locale::classic(), new DecimalComma});
  const std::string c_before = std::setlocale(LC_ALL, nullptr);
  for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"}) {
    if (std::setlocale(LC_ALL, name) != nullptr) break;  // those that are not installed fail
  }
  CHECK(Run({"--temperature", "0.7"}).options.temperature == 0.7);
  check_refused("--temperature", "0,7", "found 0,7, expected a number such as 0.7");
  check_refused("--temperature", "-1.5", "temperature is -1.5, expected");
  const TempDir folder;
  const std::string path = folder_with(folder, R"({"do_sample": true, "temperature": 0.75})");
  CHECK(read_sampling(path).temperature == 0.75);
  std::setlocale(LC_ALL, c_before.c_str());
  std::locale::global(before);
}

TEST_CASE("sampling config: as the reference reads generation_config.json") {
  const auto read = [](const std::string& json) {
    const TempDir folder;
    return read_sampling(folder_with(folder, json));
  };
  const Sampling qwen = read(R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95,
                                 "min_p": 0.02, "repetition_penalty": 1.1})");
  CHECK(qwen.temperature == 0.6);
  CHECK(qwen.top_k == 20);
  CHECK(qwen.top_p == 0.95);
  CHECK(qwen.min_p == 0.02);
  CHECK(qwen.repetition_penalty == 1.1);

  // Without do_sample the rest is for those who switch it on; a penalty counts in any case.
  for (const std::string off : {"false", "null"}) {
    const Sampling greedy = read(R"({"temperature": 0.6, "top_k": 20, "repetition_penalty": 1.1,
                                     "do_sample": )" +
                                 off + "}");
    CHECK(greedy.temperature == 0);
    CHECK(greedy.top_k == 0);
    CHECK(greedy.repetition_penalty == 1.1);
  }
  CHECK(read(R"({"eos_token_id": 1})").temperature == 0);

  const Sampling defaults = read(R"({"do_sample": true, "top_p": null})");
  CHECK(defaults.temperature == 1);
  CHECK(defaults.top_k == 50);
  CHECK(defaults.top_p == 1);
  CHECK(read(R"({"do_sample": true, "top_k": 0})").top_k == 0);
}

TEST_CASE("sampling config: beside a file, for GGUF, and where there is none") {
  const TempDir folder;
  CHECK(read_sampling(folder.path()).temperature == 0);
  folder.write("generation_config.json", R"({"do_sample": true})");
  CHECK(read_sampling(folder.write("model.safetensors", "")).temperature == 1);
  CHECK(read_sampling(folder.write("model.gguf", "GGUF")).temperature == 0);
}

TEST_CASE("sampling config: errors name the file and the key") {
  const auto complains = [](const std::string& json, const std::string& part) {
    const TempDir folder;
    const std::string path = folder_with(folder, json);
    check_throws_with([&] { read_sampling(path); }, "generation_config.json: " + part);
  };
  complains(R"({"do_sample": 1})", "do_sample is 1, expected true or false");
  complains(R"({"do_sample": true, "temperature": "x"})",
            "temperature is \"x\", expected a number");
  complains(R"({"do_sample": true, "temperature": 0})",
            "temperature is 0, expected a number above");
  complains(R"({"do_sample": true, "temperature": -1})", "[sampling] temperature is -1, expected");
  complains(R"({"do_sample": true, "top_k": -1})", "top_k is -1, expected");
  complains(R"({"do_sample": true, "top_p": 2})", "[sampling] top_p is 2, expected");
}
