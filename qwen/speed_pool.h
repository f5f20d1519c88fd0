// The part `pool`: what it costs to give work to other threads, and what a step would pay for it if
// every small operator did.
#pragma once

#include "qwen/ops.h"
#include "qwen/speed.h"

namespace qwen {

// How a small operator is run: `work` is its computation.
using Around = std::function<void(const std::function<void()>& work)>;

// The same operators, all but `linear` and `delta_rule` run by `around`: those that have little to
// do for one token.
Ops small_ops_around(const Ops& ops, const Around& around);

// Operators that give zeros of the right shape. A product is one region of the whole team: what is
// left is the price of a step's regions, tensors and calls.
Ops empty_ops();

// On SmolLM2-135M's shape, in float32: a small model, so that small costs show.
std::string pool_part(Speed& speed);

// The same on any random model.
std::string pool_part_on(Speed& speed, const Config& config, const std::string& name);

}  // namespace qwen
