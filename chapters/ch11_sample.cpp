// Chapter 11. How does a row of logits become a text?
//
// New: sampler, which turns logits into a distribution and draws from it, and generate, the loop
// around it. The program shows what each step leaves of the tokens that could follow a prompt, what
// is drawn, and how the same prompt goes on: greedily, with several seeds, hot, and with penalties.
#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>

#include "qwen/generate.h"
#include "qwen/json.h"
#include "qwen/options.h"
#include "qwen/sampling_config.h"
#include "qwen/sampling_options.h"
#include "qwen/stopwatch.h"
#include "qwen/tables.h"
#include "qwen/tokenizer.h"
#include "qwen/utf8.h"

using namespace qwen;

namespace {

struct Options {
  ModelOptions model;
  SamplingOptions sampling;
  std::string prompt = "One morning Ada walked to Elmport. Under a tree Ada found a book.";
  int max_new = 40;
};

// What is shown where neither the user nor the checkpoint asks for sampling.
constexpr Sampling kExample{
    .temperature = 0.8, .top_k = 20, .top_p = 0.9, .min_p = 0.1, .repetition_penalty = 1.1};

struct Setup {
  Model model;
  Ops ops;
  Tokenizer tokenizer;
  std::vector<int> prompt;
};

// A text in quotes, on one line.
std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string labelled(const char* label, double x) {
  char text[64];
  std::snprintf(text, sizeof text, "%s %g", label, x);
  return text;
}

// The steps that `s` takes, each with all before it.
struct Step {
  std::string name;
  Sampling sampling;
};
std::vector<Step> steps_of(const Sampling& s) {
  Sampling so_far{.temperature = 1};
  std::vector<Step> steps = {{"as it is", so_far}};
  so_far.repetition_penalty = s.repetition_penalty;
  so_far.presence_penalty = s.presence_penalty;
  so_far.frequency_penalty = s.frequency_penalty;
  steps.push_back({"penalties", so_far});
  so_far.temperature = s.temperature;
  steps.push_back({labelled("T", s.temperature), so_far});
  so_far.top_k = s.top_k;
  steps.push_back({labelled("top-k", s.top_k), so_far});
  so_far.top_p = s.top_p;
  steps.push_back({labelled("top-p", s.top_p), so_far});
  so_far.min_p = s.min_p;
  steps.push_back({labelled("min-p", s.min_p), so_far});
  return steps;
}

// The `count` likeliest, the best first.
std::vector<int> likeliest(Distribution all, std::size_t count) {
  count = std::min(count, all.size());
  std::partial_sort(all.begin(), all.begin() + count, all.end(),
                    [](const auto& a, const auto& b) { return a.probability > b.probability; });
  std::vector<int> ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(all[i].id);
  return ids;
}

void show_steps(const Setup& at, const Sampling& sampling) {
  constexpr int kDraws = 1000;
  Sequence sequence = empty_sequence(at.model.config);
  const Tensor2 logits = read(at.model, at.ops, sequence, at.prompt);
  History history;
  add_prompt(history, at.prompt);
  std::vector<Distribution> left;
  std::printf("the likeliest tokens, and what each step makes of their probabilities:\n   logit");
  for (const auto& [name, so_far] : steps_of(sampling)) {
    left.push_back(distribution(logits, so_far, history));
    std::printf(" %10s", name.c_str());
  }
  std::printf("   in %d\n", kDraws);
  std::map<int, int> drawn;
  std::mt19937_64 generator(sampling.seed);
  for (int i = 0; i < kDraws; ++i) ++drawn[draw(left.back(), uniform(generator))];

  for (const int id : likeliest(left.front(), 10)) {
    std::printf("%8.2f", logits(0, id));
    for (const Distribution& all : left) std::printf("%11.4f", probability(all, id));
    std::printf("%10d  %s\n", drawn[id], quoted(decode(at.tokenizer, {&id, 1})).c_str());
  }
  std::printf("    left");
  for (const Distribution& all : left) std::printf("%11zu", all.size());
  std::printf("\n\n");
}

std::vector<int> show_text(const Setup& at, const std::string& name, const Sampling& sampling,
                           int max_new) {
  Sequence sequence = empty_sequence(at.model.config);
  const Answer answer = generate(at.model, at.ops, sequence, at.prompt, sampling, max_new, nullptr);
  std::printf("%-22s %s\n", name.c_str(), quoted(decode(at.tokenizer, answer.ids)).c_str());
  return answer.ids;
}

void show_texts(const Setup& at, const Sampling& sampling, int max_new) {
  std::printf("the prompt goes on:\n");
  show_text(at, "greedy", {}, max_new);
  show_text(at, "greedy, penalties", {.repetition_penalty = 1.2, .frequency_penalty = 0.5},
            max_new);
  show_text(at, "temperature 3 alone", {.temperature = 3, .seed = sampling.seed}, max_new);
  std::vector<std::vector<int>> texts;
  for (const int more : {0, 1, 2, 0}) {
    Sampling seeded = sampling;
    seeded.seed += more;
    const std::string name = "the steps, seed " + std::to_string(seeded.seed);
    texts.push_back(show_text(at, name, seeded, max_new));
  }
  std::printf("a seed's text comes again: %s\n\n", texts.front() == texts.back() ? "yes" : "NO");
}

// Median of nine runs, in milliseconds.
template <class Work>
double milliseconds(const Work& work) {
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) {
    const auto start = Clock::now();
    work();
    times.push_back(1e3 * seconds_since(start));
  }
  std::nth_element(times.begin(), times.begin() + 4, times.end());
  return times[4];
}

// Times depend on the machine: ~ tells tools/book not to compare them.
void show_times() {
  std::vector<float> logits(248'320);
  std::mt19937_64 generator(1);
  for (float& logit : logits) logit = static_cast<float>(24 * std::pow(uniform(generator), 4));
  std::printf("choosing one of 248,320 tokens takes\n");
  const auto show = [&](const char* name, const Sampling& sampling) {
    const double time = milliseconds([&] { draw(distribution(logits, sampling, {}), 0.5); });
    std::printf("~ %7.3f ms  %s\n", time, name);
  };
  show("greedy", {});
  show("temperature 0.6, top-k 20, top-p 0.95", {.temperature = 0.6, .top_k = 20, .top_p = 0.95});
  show("temperature 1", {.temperature = 1});
  show("temperature 1, top-p 0.95", {.temperature = 1, .top_p = 0.95});
  const double sorting = milliseconds([&] {
    std::vector<float> sorted = logits;
    std::sort(sorted.begin(), sorted.end());
  });
  std::printf("~ %7.3f ms  sorting the logits, which none of these does\n", sorting);
}

void run(const Options& options) {
  // In f32 machines differ in digits that are not shown; a product in bf16 rounds x, and what falls
  // to one side here may fall to the other there.
  ModelOptions chosen = options.model;
  if (chosen.dtype.empty()) chosen.dtype = "f32";
  Setup at{open_model(chosen), fast_ops(), load_tokenizer(options.model.model), {}};
  const std::string prompt = repair_utf8(options.prompt);
  at.prompt = encode_prompt(at.tokenizer, prompt);
  check_tokens(at.model.config, at.prompt, 0);
  std::printf("%s …\n\n", prompt.c_str());

  const Sampling recommended = read_sampling(options.model.model);
  const Sampling sampling =
      chosen_sampling(options.sampling, recommended.temperature > 0 ? recommended : kExample);
  show_steps(at, sampling);
  show_texts(at, sampling, options.max_new);
  show_times();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Chapter 11: from logits to a text");
  Options options;
  add_model_options(app, options.model);
  add_sampling_options(app, options.sampling);
  app.add_option("--prompt", options.prompt, "the text to continue");
  add_integer(app, "--max-new", options.max_new, 0, 1 << 20, "tokens to write at most");
  return run_program(app, argc, argv, [&] { run(options); });
}
