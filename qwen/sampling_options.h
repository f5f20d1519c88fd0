// The options of every program that chooses tokens.
#pragma once

#include <cstdint>
#include <optional>

#include "qwen/program.h"
#include "qwen/sampler.h"

namespace qwen {

// What the user asked for; what is empty stays as the checkpoint recommends it.
struct SamplingOptions {
  std::optional<double> temperature, top_p, min_p;
  std::optional<int> top_k;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<std::uint64_t> seed;
};

// --temperature, --greedy (short for --temperature 0), --top-k, --top-p, --min-p,
// --repetition-penalty, --presence-penalty, --frequency-penalty and --seed. Values that
// check_sampling refuses are wrong usage.
void add_sampling_options(CLI::App& app, SamplingOptions& options);

// `recommended` (read_sampling) changed by the options. Who asks for top-k, top-p or min-p asks to
// sample: at temperature 1 where neither the options nor the checkpoint names another.
Sampling chosen_sampling(const SamplingOptions& options, const Sampling& recommended);

}  // namespace qwen
