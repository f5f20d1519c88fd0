// What one does with a sequence's memory: keep it, go back in it, use it again.
//
// The two kinds of state differ. A KV cache holds one row per token, so cutting it is setting a
// length. The recurrent state S holds all tokens in one matrix: it cannot be cut, only be replaced
// by a copy made earlier. So going back to token p takes a snapshot at or before p, and the tokens
// between the two are read again.
#pragma once

#include <span>
#include <vector>

#include "qwen/model.h"

namespace qwen {

// The part of a state that cannot be cut, as it was at `position`.
struct Snapshot {
  int position = 0;
  std::vector<DeltaState> deltas;  // one per DeltaNet layer, in order
};

// A text that is being read or written: its tokens, what the model remembers of them, and the
// places one can go back to (by position, ascending; position 0 needs none).
struct Sequence {
  std::vector<int> ids;
  State state;
  std::vector<Snapshot> snapshots;
};

Sequence empty_sequence(const Config& config);

// The state before the first token, its KV caches large enough for `tokens` tokens. A cache that
// grows by doubling would hold twice what it needs, and three times while its rows are copied.
State roomy_state(const Config& config, int tokens);

// Tokens that are read at once: more would need more memory and be hardly faster.
inline constexpr int kReadAtOnce = 512;

// Reads more tokens, `piece` at a time (0: all at once); logits [1, vocab_size] of the last.
// Any pieces give the same bits.
Tensor2 read(const Model& model, const Ops& ops, Sequence& sequence, std::span<const int> ids,
             int piece = kReadAtOnce);

// Keeps a copy of every S and conv tail at the present position.
void snapshot(Sequence& sequence);

// Goes back to the last snapshot at or before `position` (0 if there is none), and returns where
// that is. Tokens and snapshots after it are dropped. std::invalid_argument if the sequence is
// shorter than `position`.
int truncate(Sequence& sequence, int position);

// Goes back to where `ids` and the sequence part, at most to ids.size() - 1: the last token must be
// read again, since its logits are wanted. Returns how many of the ids need not be read.
int reuse_prefix(Sequence& sequence, std::span<const int> ids);

// Bytes that hold something, as opposed to being reserved.
struct StateBytes {
  std::size_t kv = 0;         // grows with every token
  std::size_t recurrent = 0;  // S of all DeltaNet layers
  std::size_t conv = 0;       // their conv tails
  std::size_t total() const { return kv + recurrent + conv; }
};
StateBytes state_bytes(const State& state);

}  // namespace qwen
