// The part `ops`: what a step should take, what it takes, and which operator has the difference.
#pragma once

#include "qwen/profile.h"
#include "qwen/speed.h"

namespace qwen {

// Products of one forward that are alike: so many rows of x, with one of the matrices each.
struct LinearCalls {
  int rows = 0;
  std::vector<Weight> weights;  // all of the same shape
};

// The products of a forward of `tokens` tokens, by shape, in the order of their first use.
std::vector<LinearCalls> linear_calls(const Model& model, int tokens);

// An operator's share of one step. The products are those of the MLPs, the attention layers, the
// DeltaNet layers and the head.
struct OperatorTime {
  std::string name;
  double seconds = 0;
  double least = 0;  // seconds at the limits; 0 for what neither reads nor computes much
};

// The profile of `steps` steps of `total_seconds` together, as shares of one of them, the largest
// first; what no operator accounts for stands last as "between operators". `costs` are those of
// one step.
std::vector<OperatorTime> operator_times(const Profile& profile, int steps, double total_seconds,
                                         const OperatorCosts& costs, DType dtype,
                                         const Limits& limits);

std::string ops_part(Speed& speed);

}  // namespace qwen
