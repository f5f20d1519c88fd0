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

}  // namespace qwen
