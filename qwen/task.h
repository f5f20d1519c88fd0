// What is timed: reading a prompt, then writing tokens one by one.
#pragma once

#include <vector>

#include "qwen/measure.h"
#include "qwen/model.h"

namespace qwen {

// `count` ids spread over the vocabulary; the same ones every time.
std::vector<int> sample_ids(const Config& config, int count);

// Phase 0: one forward of the prompt, and the choice of the next token. Phase 1: `steps` greedy
// tokens, each the input of the next; an end of text ends nothing. From an empty state. The hash
// is that of the tokens. Throws Interrupted after Ctrl-C.
Run run_task(const Model& model, const Ops& ops, const std::vector<int>& prompt, int steps);

// A state as if `context` tokens had been read, with room for `room` more. Its keys and values are
// made up, S and conv tails zero: how long a step takes depends on how many there are, not on what
// they say.
State filled_state(const Config& config, int context, int room);

// Such a state again, after some steps.
void rewind(const Config& config, State& state, int context);

// The second phase alone, from the state as it is.
Run run_steps(const Model& model, const Ops& ops, State& state, int steps);

}  // namespace qwen
