// One layer: x += mixer(norm(x)); x += mlp(norm(x)).
#pragma once

#include <span>
#include <variant>
#include <vector>

#include "qwen/attention.h"
#include "qwen/deltanet.h"
#include "qwen/mlp.h"

namespace qwen {

struct Layer {
  Tensor1 input_layernorm, post_attention_layernorm;  // [hidden_size], the scale itself
  std::variant<Attention, DeltaNet> mixer;
  Mlp mlp;
};

// What one sequence remembers in one layer: of the kind its mixer needs.
using LayerState = std::variant<KVCache, DeltaState>;
LayerState empty_layer_state(const Config& config, LayerType type);

// x [T, hidden_size] holds the new rows of all shares, one after the other (segment.h); moved on in
// place.
void layer_forward(const Ops& ops, const Config& config, const Layer& layer,
                   std::span<const Share<LayerState>> shares, Tensor2& x);

}  // namespace qwen
