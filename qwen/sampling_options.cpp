#include "qwen/sampling_options.h"

#include <climits>
#include <stdexcept>

namespace qwen {
namespace {

// Its limits are those of check_sampling.
void add_field(CLI::App& app, const std::string& name, double Sampling::*field,
               std::optional<double>& given, const std::string& description) {
  const auto set = [=, &given](const std::string& text) {
    Sampling sampling;
    sampling.*field = number_of(name, text);
    try {
      check_sampling(sampling);
    } catch (const std::invalid_argument& error) {
      throw CLI::ValidationError(name, error.what());
    }
    given = sampling.*field;
  };
  app.add_option_function<std::string>(name, set, description)->type_name("NUMBER");
}

}  // namespace

void add_sampling_options(CLI::App& app, SamplingOptions& options) {
  add_field(app, "--temperature", &Sampling::temperature, options.temperature,
            "divides the logits: below 1 safer, above 1 bolder, 0 always the likeliest token");
  app.add_flag_callback(
         "--greedy", [&] { options.temperature = 0; }, "short for --temperature 0")
      ->excludes("--temperature");
  add_integer(app, "--top-k", options.top_k, 0, INT_MAX, "only the K likeliest tokens (0: all)");
  add_field(app, "--top-p", &Sampling::top_p, options.top_p,
            "only the fewest likeliest tokens that together reach this probability (1: all)");
  add_field(app, "--min-p", &Sampling::min_p, options.min_p,
            "only tokens at least this many times as likely as the likeliest (0: all)");
  add_field(app, "--repetition-penalty", &Sampling::repetition_penalty, options.repetition_penalty,
            "above 1: makes every token of prompt and answer less likely (1: off)");
  add_field(app, "--presence-penalty", &Sampling::presence_penalty, options.presence_penalty,
            "taken off the logit of every token the answer has (0: off)");
  add_field(app, "--frequency-penalty", &Sampling::frequency_penalty, options.frequency_penalty,
            "taken off for each time the answer has it (0: off)");
  add_integer(app, "--seed", options.seed, 0, UINT64_MAX,
              "the same seed draws the same tokens (0 where not given)");
}

Sampling chosen_sampling(const SamplingOptions& options, const Sampling& recommended) {
  Sampling s = recommended;
  if (options.temperature) {
    s.temperature = *options.temperature;
  } else if (s.temperature == 0 && (options.top_k || options.top_p || options.min_p)) {
    s.temperature = 1;
  }
  s.top_k = options.top_k.value_or(s.top_k);
  s.top_p = options.top_p.value_or(s.top_p);
  s.min_p = options.min_p.value_or(s.min_p);
  s.repetition_penalty = options.repetition_penalty.value_or(s.repetition_penalty);
  s.presence_penalty = options.presence_penalty.value_or(s.presence_penalty);
  s.frequency_penalty = options.frequency_penalty.value_or(s.frequency_penalty);
  s.seed = options.seed.value_or(s.seed);
  return s;
}

}  // namespace qwen
