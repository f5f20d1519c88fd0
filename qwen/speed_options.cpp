#include "qwen/speed_options.h"

#include <cstdlib>
#include <ctime>

#include "qwen/caches.h"
#include "qwen/machine.h"

namespace qwen {
namespace {

bool is_only(const SpeedOptions& options, const char* part) {
  return options.parts == std::vector<std::string>{part};
}

// Several values make configurations, and those are for the matrix.
void check_values(const SpeedOptions& options) {
  if (is_only(options, "matrix")) return;
  for (const std::string& part : options.parts) {
    if (part == "matrix") throw CLI::ValidationError("--part", "matrix is measured alone");
  }
  const auto at_most_one = [](const char* option, std::size_t count) {
    if (count > 1) {
      throw CLI::ValidationError(option, "several values make a matrix: --part matrix");
    }
  };
  at_most_one("--model", options.models.size());
  at_most_one("--dtype", options.dtypes.size());
  at_most_one("--device", options.devices.size());
  at_most_one("--threads", options.threads.size());
}

// What would be passed over in silence is refused.
void check_use(const CLI::App& app, const SpeedOptions& options) {
  const auto refuse = [&](const char* option, const std::string& where) {
    if (app.count(option) > 0) throw CLI::ValidationError(option, "changes nothing " + where);
  };
  if (options.counts) {
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_name() == "--counts") continue;
      refuse(option->get_name().c_str(), "with --counts: what is counted is always the same");
    }
  }
  if (is_only(options, "matrix")) {
    for (const char* option : {"--full", "--book"}) refuse(option, "in a matrix");
  }
  if (options.child) {
    if (!is_only(options, "task")) throw CLI::ValidationError("--child", "is for --part task");
    for (const char* option : {"--json", "--report", "--full", "--book"}) {
      refuse(option, "with --child");
    }
  }
}

std::string now() {
  const std::time_t seconds = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", std::gmtime(&seconds));
  return text;
}

}  // namespace

void add_speed_options(CLI::App& app, SpeedOptions& options, std::vector<std::string> parts) {
  parts.push_back("matrix");
  add_words(app, "--part", options.parts, parts,
            "only these parts; `matrix` is every --model in every --dtype with every number of "
            "--threads, each in processes of its own");
  app.add_option(
         "--model", options.models,
         "a directory, a .safetensors file, a .gguf file, or the name of a shape to fill "
         "with random weights; without it $QWEN_MODEL, a Qwen3.5 in the hub's cache, or the "
         "shape qwen3.5-0.8b")
      ->expected(1, 1 << 20)
      ->allow_extra_args(false);  // else CLI11 before 2.5 takes [m] for a list of one
  add_words(app, "--dtype", options.dtypes, {"f32", "f16", "bf16"},
            "the type of the matrices; without it as stored");
  add_words(app, "--device", options.devices, {"cpu"}, "what it runs on; without it cpu");
  add_integers(app, "--threads", options.threads, 1, 4096,
               "threads to use; without it as many as there are cores to be had");
  add_integer(app, "--prompt", options.prompt, 1, 1 << 20, "tokens to read; 203 without it");
  add_integer(app, "--steps", options.steps, 1, 1 << 20,
              "tokens to write; 32 without it, 128 with --full and in a matrix");
  add_integer(app, "--runs", options.runs, 0, 1 << 20,
              "runs besides the first; without it up to 3, 10 with --full and in a matrix");
  app.add_option("--json", options.json,
                 "write all rows, and what they were measured on, to a file; a matrix goes on "
                 "where the file ends");
  app.add_option("--report", options.report, "write them as a page with charts, HTML");
  app.add_flag("--full", options.full,
               "longer texts, more runs, every configuration in processes of its own: half an "
               "hour");
  app.add_flag("--counts", options.counts, "only bytes and operations, nothing is timed");
  app.add_flag("--book", options.book,
               "print only the parts asked for, and mark what depends on the machine with ~");
  app.add_flag(
      "--child", options.child,
      "print the rows alone, as JSON, and end when stdin is closed: so a matrix and --full "
      "start their processes");
  app.callback([&app, &options] {
    check_values(options);
    check_use(app, options);
  });
}

std::string chosen_model(const SpeedOptions& options) {
  if (!options.models.empty()) return options.models[0];
  const char* from_environment = std::getenv("QWEN_MODEL");
  return from_environment ? from_environment : "";
}

Speed prepare_speed(const SpeedOptions& options) {
  constexpr double kSecondsOfAPart = 36;
  Speed speed;
  speed.source = choose_model(chosen_model(options));
  if (!options.dtypes.empty()) speed.source.stored = dtype_from_name(options.dtypes[0]);
  speed.threads = options.threads.empty() ? default_threads().count : options.threads[0];
  speed.block = ReadBlock(read_block_bytes(largest_cache(caches()), free_memory()));
  speed.full = options.full;
  speed.prompt = options.prompt.value_or(203);
  speed.steps = options.steps.value_or(options.full ? 128 : 32);
  speed.rounds = options.full ? Rounds{10} : Rounds{3, kSecondsOfAPart};
  if (options.runs) speed.rounds = {*options.runs};
  return speed;
}

OrderedJson record_of(const std::string& model, int prompt, int steps, int runs) {
  OrderedJson meta = machine_record();
  meta["date"] = now();
  meta["model"] = model;
  meta["prompt"] = prompt;
  meta["steps"] = steps;
  meta["runs"] = runs;
  meta["load_before"] = load_average();
  return meta;
}

}  // namespace qwen
