// Full attention: grouped queries, normalised q and k, an output gate, and the KV cache.
//
//   x ─ q_proj ─┬─ q ─ q_norm ─ rope ─┐
//               └─ gate ──────────────┼───────────────┐
//   x ─ k_proj ── k ─ k_norm ─ rope ─ cache ─ attention ─ * sigmoid(gate) ─ o_proj
//   x ─ v_proj ── v ───────────────── cache ─┘
#pragma once

#include "qwen/config.h"
#include "qwen/ops.h"
#include "qwen/segment.h"

namespace qwen {

struct Attention {
  Weight q_proj;  // [Hq * D, hidden_size]; with a gate [Hq * 2 D, …], per head D of q, D of gate
  Weight k_proj, v_proj;   // [Hkv * D, hidden_size]
  Weight o_proj;           // [hidden_size, Hq * D]
  Tensor1 q_norm, k_norm;  // [D]; empty where the model has none
};

// Keys (rotated) and values of the tokens so far.
struct KVCache {
  Tensor3 keys, values;  // [capacity, Hkv, D]; the first `length` rows are set
  int length = 0;
};

// The same cache, cut after `length` tokens.
void truncate(KVCache& cache, int length);

// x [T, hidden_size] -> [T, hidden_size], T the packed rows of all shares (segment.h). A sequence's
// new tokens follow those in its cache and are added to it.
Tensor2 attention_forward(const Ops& ops, const Config& config, const Attention& weights,
                          const Tensor2& x, std::span<const Share<KVCache>> shares);

namespace plain {
// q [T, Hq, D]; keys, values [at least position + T, Hkv, D] -> [T, Hq * D]. Query head h reads
// key/value head h / (Hq / Hkv); query t sees the keys 0 … position + t. softmax(q k / sqrt(D)) v.
Tensor2 attention(const Tensor3& q, const Tensor3& keys, const Tensor3& values, int position);
// x, gate [T, N] -> [T, N]: x * sigmoid(gate).
Tensor2 sigmoid_gate(const Tensor2& x, const Tensor2& gate);
}  // namespace plain

namespace fast {
Tensor2 attention(const Tensor3& q, const Tensor3& keys, const Tensor3& values, int position);
Tensor2 sigmoid_gate(const Tensor2& x, const Tensor2& gate);
}  // namespace fast

}  // namespace qwen
