#include "qwen/cache.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace qwen {
namespace {

bool is_recurrent(const State& state) {
  return std::any_of(state.layers.begin(), state.layers.end(), [](const LayerState& layer) {
    return std::holds_alternative<DeltaState>(layer);
  });
}

// Puts the copies back, and cuts the KV caches to the same place.
void restore(State& state, const Snapshot& snapshot) {
  std::size_t next = 0;
  for (LayerState& layer : state.layers) {
    if (auto* kv = std::get_if<KVCache>(&layer)) {
      truncate(*kv, snapshot.position);
    } else {
      std::get<DeltaState>(layer) = snapshot.deltas[next++];
    }
  }
  state.position = snapshot.position;
}

// The state before the first token, seen as a snapshot.
Snapshot beginning(const State& state) {
  Snapshot zero;
  for (const LayerState& layer : state.layers) {
    if (const auto* delta = std::get_if<DeltaState>(&layer)) {
      zero.deltas.push_back(*delta);
      zero.deltas.back().tail.fill(0.0f);
      zero.deltas.back().S.fill(0.0f);
    }
  }
  return zero;
}

}  // namespace

Sequence empty_sequence(const Config& config) {
  return {{}, empty_state(config), {}};
}

State roomy_state(const Config& config, int tokens) {
  State state = empty_state(config);
  for (LayerState& layer : state.layers) {
    if (auto* kv = std::get_if<KVCache>(&layer)) {
      kv->keys = uninit(tokens, config.num_key_value_heads, config.head_dim);
      kv->values = uninit(tokens, config.num_key_value_heads, config.head_dim);
    }
  }
  return state;
}

Tensor2 read(const Model& model, const Ops& ops, Sequence& sequence, std::span<const int> ids,
             int piece) {
  if (ids.empty()) throw std::invalid_argument("[read] no tokens: at least 1 is needed");
  // All of it must fit, and every id be one, before anything is read.
  const int count = static_cast<int>(ids.size());
  check_tokens(model.config, ids, sequence.state.position);
  Tensor2 hidden;
  for (int first = 0; first < count;) {
    const int rows = piece > 0 ? std::min(piece, count - first) : count;
    const Share<State> alone{&sequence.state, rows};
    hidden = hidden_states(model, ops, ids.subspan(first, rows), {&alone, 1});
    sequence.ids.insert(sequence.ids.end(), ids.begin() + first, ids.begin() + first + rows);
    first += rows;
  }
  return head(model, ops, slice(hidden, dim(hidden, 0) - 1, 1));
}

void snapshot(Sequence& sequence) {
  const int position = sequence.state.position;
  if (!sequence.snapshots.empty() && sequence.snapshots.back().position == position) return;
  Snapshot copy{position, {}};
  for (const LayerState& layer : sequence.state.layers) {
    if (const auto* delta = std::get_if<DeltaState>(&layer)) copy.deltas.push_back(*delta);
  }
  sequence.snapshots.push_back(std::move(copy));
}

int truncate(Sequence& sequence, int position) {
  const int length = sequence.state.position;
  if (position < 0 || position > length) {
    throw std::invalid_argument("[truncate] position " + std::to_string(position) +
                                " is not within the " + std::to_string(length) +
                                " tokens of the sequence");
  }
  if (position == length) return length;
  auto& snapshots = sequence.snapshots;
  while (!snapshots.empty() && snapshots.back().position > position) snapshots.pop_back();
  if (!is_recurrent(sequence.state)) {
    restore(sequence.state, {position, {}});  // a KV cache can be cut anywhere
  } else if (snapshots.empty()) {
    restore(sequence.state, beginning(sequence.state));
  } else {
    restore(sequence.state, snapshots.back());
  }
  sequence.ids.resize(sequence.state.position);
  return sequence.state.position;
}

int reuse_prefix(Sequence& sequence, std::span<const int> ids) {
  if (ids.empty()) throw std::invalid_argument("[reuse_prefix] no tokens: at least 1 is needed");
  const auto parted =
      std::mismatch(sequence.ids.begin(), sequence.ids.end(), ids.begin(), ids.end() - 1);
  return truncate(sequence, static_cast<int>(parted.first - sequence.ids.begin()));
}

StateBytes state_bytes(const State& state) {
  StateBytes bytes;
  for (const LayerState& layer : state.layers) {
    if (const auto* kv = std::get_if<KVCache>(&layer)) {
      if (kv->length == 0) continue;
      const std::size_t row_size = kv->keys.size() / kv->keys.shape(0);
      bytes.kv += 2 * row_size * kv->length * sizeof(float);
    } else {
      const auto& delta = std::get<DeltaState>(layer);
      bytes.recurrent += delta.S.size() * sizeof(float);
      bytes.conv += delta.tail.size() * sizeof(float);
    }
  }
  return bytes;
}

}  // namespace qwen
