// The whole model: embedding, layers, final norm, head.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "qwen/layer.h"

namespace qwen {

struct Model {
  Config config;
  Weight embed_tokens;  // [vocab_size, hidden_size]
  std::vector<Layer> layers;
  Tensor1 norm;    // [hidden_size]
  Weight lm_head;  // [vocab_size, hidden_size]; embed_tokens itself when the file has none
  std::vector<std::string> remarks;  // of reading the checkpoint, worth telling the user
};

// Everything one sequence remembers.
struct State {
  int position = 0;                // tokens read so far
  std::vector<LayerState> layers;  // one per layer
};

// A sequence's share of a forward call: its state and how many of the ids are its own.
struct Segment {
  State* state;
  int rows;
  bool all_logits = false;  // logits of every row, not only of the last
};

// Opens a checkpoint and names every part. With `dtype`, matrices are converted to it. Every tensor
// of the file must be used, or be known not to concern text. std::runtime_error, one line.
Model load_model(const std::string& path, std::optional<DType> dtype = std::nullopt);

// The state before the first token.
State empty_state(const Config& config);

// ids [T]: the new tokens of all segments, one after the other -> logits [segments' last rows (or
// all their rows), vocab_size], in the segments' order. The states are moved on. If an id is out of
// range or a context would grow past max_position_embeddings: std::invalid_argument, before any
// state changes. std::runtime_error naming the layer when a value is not finite.
Tensor2 forward(const Model& model, const Ops& ops, std::span<const int> ids,
                std::span<const Segment> segments);

// One sequence alone: logits [1, vocab_size] of the last token.
Tensor2 forward(const Model& model, const Ops& ops, std::span<const int> ids, State& state);

}  // namespace qwen
