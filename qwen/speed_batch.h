// The part `batch`: several sequences in one forward, and where the weights stop being the limit.
#pragma once

#include <span>

#include "qwen/speed.h"

namespace qwen {

// 1, 2, 4, … 64 sequences, as far as a quarter of the memory has room for their states.
std::vector<int> batches_to_try(const Config& config, int context, std::size_t free_memory);

// The number of sequences, not a whole one, from which on a step that reads its weights once and
// computes with them for everybody takes longer to compute than to read; infinity if there is none.
double computing_from(const Config& config, DType dtype, int context, const Limits& limits);

// How many doublings of the batch in a row, from the first, are worth that everybody waits longer:
// each gives at least that many times the tokens a second.
inline constexpr double kWorthDoubling = 1.25;
int doublings_worth(const std::vector<double>& speeds);

// Phase 0: `steps` forwards, one greedy token for each of the states. The hash is that of the first
// sequence's tokens, which must not depend on who else is there.
Run run_batch(const Model& model, const Ops& ops, std::span<State> states, int steps);

std::string batch_part(Speed& speed);

}  // namespace qwen
