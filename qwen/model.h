// The whole model: embedding, layers, final norm, head.
//
//   ids ─ embed ─ x ─ layer 0 ─ … ─ layer 23 ─ norm ─ hidden ─ head ─ logits
//                      │ state         │ state
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "qwen/layer.h"

namespace qwen {

struct Model {
  Config config;
  Weight embed_tokens;  // [vocab_size, hidden_size]
  std::vector<Layer> layers;
  Tensor1 norm;                      // [hidden_size]
  Weight lm_head;                    // [vocab_size, hidden_size]; embed_tokens where it is tied
  std::vector<std::string> remarks;  // of loading, worth telling the user
};

// Everything one sequence remembers. A copy is a sequence of its own from there on.
struct State {
  int position = 0;                // tokens read so far
  std::vector<LayerState> layers;  // one per layer
};

// The state before the first token.
State empty_state(const Config& config);

// std::invalid_argument unless `ids` can be read after `position` tokens: at least one, each below
// vocab_size, and no more than fit into max_position_embeddings.
void check_tokens(const Config& config, std::span<const int> ids, int position);

// std::runtime_error naming `where` unless every value of x is finite.
void expect_finite(const Tensor2& x, const std::string& where);

// What becomes of a call in which a share has a value that is not finite; `what` says where, in one
// line. Where it returns, the others go on, and what else comes of that share means nothing.
using OnFault = std::function<void(std::size_t share, const std::string& what)>;
[[noreturn]] void throw_fault(std::size_t share, const std::string& what);  // std::runtime_error

// ids [T]: the new tokens of all shares, one after the other (segment.h) -> [T, hidden_size], their
// hidden states after the final norm. The states are moved on.
// Throws what check_tokens does, before any state is touched. on_fault is told of the layer as soon
// as a value is no longer finite.
Tensor2 hidden_states(const Model& model, const Ops& ops, std::span<const int> ids,
                      std::span<const Share<State>> shares, const OnFault& on_fault = throw_fault);

// hidden [T, hidden_size] -> logits [T, vocab_size]. The widest product of the model: give it only
// the rows whose next token is wanted. For on_fault, each row is a share.
Tensor2 head(const Model& model, const Ops& ops, const Tensor2& hidden,
             const OnFault& on_fault = throw_fault);

// Logits [shares, vocab_size] of the last token of every share.
Tensor2 forward(const Model& model, const Ops& ops, std::span<const int> ids,
                std::span<const Share<State>> shares);

// One sequence alone: logits [1, vocab_size] of its last token.
Tensor2 forward(const Model& model, const Ops& ops, std::span<const int> ids, State& state);

// logits [1, vocab_size] -> the id of the largest; the lowest where several are.
int argmax(const Tensor2& logits);

}  // namespace qwen
