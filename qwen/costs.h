// What a step of the model costs, counted: the bytes that have to come from memory and the
// operations that have to be done.
#pragma once

#include <map>
#include <string>

#include "qwen/config.h"
#include "qwen/dtype.h"

namespace qwen {

// Parameters of a model of that shape, the MTP layers left out.
double parameter_count(const Config& config);

struct Cost {
  double weight_bytes = 0;       // every matrix once, whatever the number of tokens
  double state_bytes = 0;        // keys and values read; S and conv tails read and written
  double linear_operations = 0;  // of products with weights; two for a multiply-add
  double other_operations = 0;   // attention, delta rule and convolution, in float32
  double bytes() const { return weight_bytes + state_bytes; }
  double operations() const { return linear_operations + other_operations; }
};

// By operator: "linear" (the layers' products), "head", "attention", "delta_rule", "conv_qkv".
using OperatorCosts = std::map<std::string, Cost>;
Cost total(const OperatorCosts& costs);

// One forward of `tokens` tokens after `position` others, the head on the last one only, with
// matrices of that type. Norms, gates and activations are left out: they are less than 1 %.
OperatorCosts operator_costs(const Config& config, DType dtype, int tokens, int position);
Cost forward_cost(const Config& config, DType dtype, int tokens, int position);  // their total

// One token for each of `batch` sequences in one forward, each after `position` tokens of its own:
// the weights are read once for all, everything else is done for each.
OperatorCosts batch_costs(const Config& config, DType dtype, int batch, int position);

// A round of speculative decoding (chapter 14) after `position` tokens: `drafts` guesses of the MTP
// layer, one after the other ("guesses"), and one forward that reads them behind the token before,
// with the head on every row. Going back is left out.
OperatorCosts round_costs(const Config& config, DType dtype, int drafts, int position);

// Multiply-adds of one head for one token (deltanet_fast.cpp): decay, recall, write and read, each
// over all of S [Dk, Dv].
double recurrent_multiply_adds(int Dk, int Dv);

// The same for a chunk of C tokens (chunk_fast.cpp), by its five products and the decay of S; for
// one of its tokens.
double chunked_multiply_adds(int Dk, int Dv, int C);

}  // namespace qwen
