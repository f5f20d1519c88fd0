// Chapter 13. Can one read of the weights serve many texts?
//
// New: batch, in which sequences join, write and leave while others run; scheduler, which admits
// them by a budget of memory; prompts, a file of which goes in and comes out as answers. Without a
// file the program shows on a list of its own that answers are the same alone and together, what
// memory decides, how speed grows with the batch, and why a long prompt is read in pieces.
//
//   ch13_batch prompts.jsonl > answers.jsonl
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "qwen/batch_speed.h"
#include "qwen/conversation.h"
#include "qwen/counted.h"
#include "qwen/find_template.h"
#include "qwen/input.h"
#include "qwen/interrupt.h"
#include "qwen/options.h"
#include "qwen/printable.h"
#include "qwen/prompts.h"
#include "qwen/sampling_config.h"
#include "qwen/sampling_options.h"
#include "qwen/status_line.h"
#include "qwen/tables.h"

using namespace qwen;

namespace {

struct Options {
  ModelOptions model;
  SamplingOptions sampling;
  BatchLimits limits;
  double memory = 1024;  // MiB
  int max_new = 128;
  std::string file;  // "-": stdin; empty: the demonstration
  bool speed = false;
};

// What the program was started with, ready to run.
struct Setup {
  Model model;
  Ops ops;
  Tokenizer tokenizer;
};

constexpr double kMiB = 1 << 20;

// ---- a file of prompts ----

// What has become of the lines so far.
struct Progress {
  std::size_t done = 0, failed = 0, tokens = 0;
  std::size_t answered() const { return done - failed; }
};

std::string status_of(const Scheduler& scheduler, std::size_t answered, std::size_t total) {
  char text[200];
  std::snprintf(text, sizeof text,
                "%zu of %zu answered, %zu running, %zu waiting, %.1f MiB of state", answered, total,
                scheduler.batch.size(), scheduler.waiting.size(),
                static_cast<double>(bytes_held(scheduler.batch)) / kMiB);
  return text;
}

// One line, whole: whoever reads along, or finds the file after Ctrl-C, never sees half of it.
void print_line(const std::string& json) {
  const std::string line = json + "\n";
  if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size() || std::fflush(stdout) != 0) {
    throw std::runtime_error("the output cannot be written");
  }
}

std::vector<PromptLine> prompts_of(const Options& options, const Setup& at) {
  Request defaults;
  defaults.sampling = chosen_sampling(options.sampling, read_sampling(options.model.model));
  defaults.max_tokens = options.max_new;
  const FoundTemplate found = find_template(options.model.model, at.model.config);
  for (const std::string& remark : found.remarks) {
    std::fprintf(stderr, "%s\n", on_one_line(remark).c_str());
  }
  return read_prompts(read_input(options.file), name_of_input(options.file), at.tokenizer,
                      found.form, at.model.config.max_position_embeddings, defaults);
}

void answer_file(const Options& options, const Setup& at) {
  std::vector<PromptLine> lines = prompts_of(options, at);
  const std::size_t total = lines.size();
  Progress progress;
  StatusLine status;
  const auto start = std::chrono::steady_clock::now();
  watch_for_interrupt();
  answer_prompts(
      at.model, at.ops, std::move(lines), options.limits,
      [&](const PromptLine& line) {
        status.clear();
        if (!line.error.empty()) std::fprintf(stderr, "%s\n", line.error.c_str());
        print_line(answer_json(at.tokenizer, line));
        ++progress.done;
        progress.failed += !line.error.empty();
        progress.tokens += line.answer.ids.size();
      },
      [&](const Scheduler& scheduler) {
        if (status.due()) status.show(status_of(scheduler, progress.answered(), total));
        return !interrupted();
      });
  status.clear();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::fprintf(stderr, "%zu of %zu answered, %s in %.1f s: %.0f tokens/s\n", progress.answered(),
               total, counted(progress.tokens, "token").c_str(), seconds.count(),
               static_cast<double>(progress.tokens) / seconds.count());
  const std::string of_all = " of " + counted(total, "prompt");
  if (progress.done < total) {
    throw std::runtime_error("interrupted: the first " + std::to_string(progress.done) + of_all +
                             " are done");
  }
  if (progress.failed > 0) {
    throw std::runtime_error(std::to_string(progress.failed) + of_all + " could not be answered");
  }
}

// ---- without a file ----

constexpr const char* kPrompts = R"({"prompt": "Q: Where does Ada live?\nA:", "stop": "\n"}
{"prompt": "31 + 46 =", "stop": "\n"}
{"prompt": "Q: What colour is the lantern?\nA:", "stop": "\n"}
{"prompt": "One morning Rosa walked to", "max_new": 16, "temperature": 0.8, "seed": 1}
{"prompt": "One morning Rosa walked to", "max_new": 16, "temperature": 0.8, "seed": 2}
{"prompt": "Notes:\nNora: drum\nIda: key\nOtto: map\nAgain:\nIda:", "stop": "\n"}
{"prompt": "Q: How do you say rabbit in Chinese?\nA:", "stop": "\n"}
{"prompt": "7 + 5 =", "stop": "\n", "temperature": 1, "seed": 3}
)";

std::vector<PromptLine> built_in_prompts(const Setup& at) {
  Request defaults;
  defaults.max_tokens = 20;
  return read_prompts(kPrompts, "the built-in list", at.tokenizer, {},
                      at.model.config.max_position_embeddings, defaults);
}

Scheduler queue_of(const Setup& at, const std::vector<PromptLine>& prompts,
                   const BatchLimits& limits) {
  Scheduler scheduler{limits, {}, {}};
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    submit(at.model.config, scheduler, static_cast<int>(i), prompts[i].request);
  }
  return scheduler;
}

// A text in quotes on one line, cut where it is long.
std::string quoted(const std::string& text, std::size_t most) {
  std::string line = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  if (line.size() <= most) return line;
  while ((line[most] & 0xC0) == 0x80) --most;  // not within a character
  return line.substr(0, most) + "…";
}

Answer alone(const Setup& at, const Request& request) {
  Sequence sequence = empty_sequence(at.model.config);
  return generate(at.model, at.ops, sequence, request.prompt, request.sampling, request.max_tokens,
                  request.on_token);
}

// How many rows each sequence reads in each step: a digit a step, a blank while it waits.
void show_steps(const Setup& at) {
  const BatchLimits limits{1 << 28, 4, 9};
  std::printf("1. eight prompts, at most %d sequences at once and %d rows a step\n\n",
              limits.sequences, limits.rows);
  std::vector<PromptLine> prompts = built_in_prompts(at);
  Scheduler scheduler = queue_of(at, prompts, limits);
  std::vector<std::string> rows(prompts.size());
  std::vector<int> read(prompts.size(), 0);
  bool same = true;
  for (std::size_t steps = 0; busy(scheduler); ++steps) {
    const std::vector<Running> done = step(at.model, at.ops, scheduler);
    const auto note = [&](const Running& running) {
      const int n = running.number;
      rows[n].resize(steps, ' ');
      rows[n] += std::to_string(running.state.position - read[n]);
      read[n] = running.state.position;
    };
    for (const Running& running : scheduler.batch) note(running);
    for (const Running& running : done) {
      note(running);
      PromptLine& prompt = prompts[running.number];
      prompt.answer = running.answer;
      same = same && alone(at, prompt.request).ids == running.answer.ids;
    }
  }
  for (std::size_t i = 0; i < prompts.size(); ++i)
    std::printf("   %zu  %s\n", i + 1, rows[i].c_str());
  std::printf("\n");
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::string text = decode(at.tokenizer, prompts[i].request.prompt);
    std::printf("   %zu  %s -> %s\n", i + 1, quoted(text, 48).c_str(),
                quoted(answer_text(at.tokenizer, prompts[i]), 60).c_str());
  }
  std::printf("\n   tokens of all answers: %s\n",
              same ? "the same as alone" : "DIFFERENT FROM ALONE");
}

// ---- memory ----

void show_budgets(const Setup& at) {
  const Config& config = at.model.config;
  const std::size_t fixed = bytes_for(config, 0);
  std::printf("2. a sequence takes %zu bytes, and %zu for every token\n", fixed,
              bytes_for(config, 1) - fixed);
  const std::vector<PromptLine> prompts = built_in_prompts(at);
  std::size_t largest = 0;
  for (const PromptLine& prompt : prompts) {
    largest = std::max(largest, bytes_for(config, tokens_at_most(config, prompt.request)));
  }
  std::printf("   budget, bytes   at once   held at most   steps\n");
  for (const int times : {8, 3, 1}) {
    Scheduler scheduler = queue_of(at, prompts, {times * largest, 8, 16});
    std::size_t most = 0, held = 0, steps = 0;
    for (; busy(scheduler); ++steps) {
      const std::vector<Running> done = step(at.model, at.ops, scheduler);
      most = std::max(most, scheduler.batch.size() + done.size());
      held = std::max(held, bytes_held(scheduler.batch) + bytes_held(done));
    }
    std::printf("   %13zu   %7zu   %12zu   %5zu\n", times * largest, most, held, steps);
  }
  try {
    queue_of(at, prompts, {largest - 1, 8, 16});
  } catch (const std::invalid_argument& error) {
    std::printf("   one byte less than the largest needs:\n   %s\n", error.what());
  }
}

// ---- speed ----

void show_speed(const Setup& at) {
  constexpr int kSteps = 10;
  std::printf("3. one read of the weights, so many tokens\n");
  std::printf("   sequences   ms a step   tokens/s, all   tokens/s, each   times one\n");
  double one = 0;
  for (const int count : {1, 2, 4, 8, 16, 32}) {
    const double seconds = write_seconds(at.model, at.ops, count, kSteps), speed = count / seconds;
    if (count == 1) one = speed;
    std::printf("~  %9d   %9.2f   %13.0f   %14.0f   %9.1f\n", count, 1e3 * seconds, speed,
                speed / count, speed / one);
  }
}

void show_long_prompt(const Setup& at) {
  constexpr int kWriters = 7, kLength = 480;
  std::printf("4. a prompt of %d tokens joins %d sequences that write\n", kLength, kWriters);
  std::printf("   rows a step   steps until it is read   ms until then   longest step, ms\n");
  for (const int max_rows : {16, 32, 64, 128, 512}) {
    const Joining joining = join_seconds(at.model, at.ops, kWriters, kLength, max_rows);
    std::printf("~  %11d   %22d   %13.1f   %16.1f\n", max_rows, joining.steps,
                1e3 * joining.seconds, 1e3 * joining.longest_seconds);
  }
}

// What would be passed over in silence is refused.
void check_use(const CLI::App& app) {
  if (app.count("file") > 0) {
    if (app.count("--speed") == 0) return;
    throw CLI::ValidationError("--speed", "is for the demonstration, without a file");
  }
  constexpr const char* kUsed[] = {"--help", "--model", "--dtype", "--threads", "--speed"};
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || std::count(std::begin(kUsed), std::end(kUsed), name) > 0) continue;
    throw CLI::ValidationError(name, "changes nothing in the demonstration: name a file, or -");
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Chapter 13: many texts in one forward");
  Options options;
  add_model_options(app, options.model);
  add_sampling_options(app, options.sampling);
  app.add_option("file", options.file,
                 "prompts, one JSON object a line; -: from stdin; none: a demonstration");
  add_integer(app, "--max-new", options.max_new, 0, 1 << 20,
              "tokens of an answer at most, where a line says none")
      ->capture_default_str();
  add_integer(app, "--sequences", options.limits.sequences, 1, 1 << 20,
              "sequences at once, at most")
      ->capture_default_str();
  add_integer(app, "--rows", options.limits.rows, 1, 1 << 20, "rows of a step, at most")
      ->capture_default_str();
  add_number(app, "--memory", options.memory, 0, 1e9,
             "MiB for the states of all sequences together")
      ->capture_default_str();
  app.add_flag("--speed", options.speed,
               "of the demonstration only how speed grows with the batch");
  app.callback([&] {
    check_use(app);
    if (options.limits.rows >= options.limits.sequences) return;
    throw CLI::ValidationError("--rows", "each of --sequences needs a row in every step");
  });
  return run_program(app, argc, argv, [&] {
    options.limits.bytes = static_cast<std::size_t>(options.memory * kMiB);
    Setup at{open_model(options.model), fast_ops(), load_tokenizer(options.model.model)};
    at.model.config.eos_token_id = end_tokens(at.model.config, at.tokenizer);
    if (!options.file.empty()) return answer_file(options, at);
    if (options.speed) return show_speed(at);
    show_steps(at);
    show_budgets(at);
    show_speed(at);
    show_long_prompt(at);
  });
}
