#include "qwen/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "qwen/rope.h"
#include "qwen/shape.h"

namespace qwen {
namespace {

struct QueryAndGate {
  Tensor2 q, gate;  // [T, Hq * D]
};

// q_proj's output holds, per head, D of q and then D of gate.
QueryAndGate split_gate(const Tensor2& q_and_gate, int heads, int D) {
  const int T = dim(q_and_gate, 0);
  QueryAndGate both{uninit(T, heads * D), uninit(T, heads * D)};
  for (int t = 0; t < T; ++t) {
    for (int h = 0; h < heads; ++h) {
      const float* head = row(q_and_gate, t) + 2 * D * h;
      std::copy_n(head, D, row(both.q, t) + D * h);
      std::copy_n(head + D, D, row(both.gate, t) + D * h);
    }
  }
  return both;
}

// x [T, heads * D], weight [D] -> [T, heads * D]: every head normalised on its own.
Tensor2 norm_heads(const Ops& ops, Tensor2&& x, const Tensor1& weight, float eps) {
  const int T = dim(x, 0), N = dim(x, 1), D = dim(weight, 0);
  return reshape(ops.rms_norm(reshape(std::move(x), T * N / D, D), weight, eps), T, N);
}

// rows [T, Hkv, D] behind the first `length` of x. The capacity doubles, so that however long the
// text grows, a row is copied once or twice in its life.
void append(Tensor3& x, int length, const Tensor3& rows) {
  const int needed = length + dim(rows, 0), capacity = dim(x, 0);
  if (needed > capacity) {
    Tensor3 larger = uninit(std::max(needed, 2 * capacity), dim(rows, 1), dim(rows, 2));
    std::copy_n(x.data(), length * (rows.size() / dim(rows, 0)), larger.data());
    x = std::move(larger);
  }
  std::copy_n(rows.data(), rows.size(), row(x, length));
}

}  // namespace

void truncate(KVCache& cache, int length) {
  if (length < 0 || length > cache.length) {
    throw std::invalid_argument("[truncate] length " + std::to_string(length) +
                                " is not within the " + std::to_string(cache.length) +
                                " tokens of the KV cache");
  }
  cache.length = length;
}

Tensor2 attention_forward(const Ops& ops, const Config& config, const Attention& weights,
                          const Tensor2& x, std::span<const Share<KVCache>> shares) {
  const int Hq = config.num_attention_heads, Hkv = config.num_key_value_heads;
  const int D = config.head_dim;

  Tensor2 q, k, v, gate;  // q [T, Hq * D], with a gate [T, Hq * 2 D]; k, v [T, Hkv * D]
  std::tie(q, k, v) = ops.linear(x, weights.q_proj, weights.k_proj, weights.v_proj);
  if (config.attn_output_gate) {
    QueryAndGate both = split_gate(q, Hq, D);
    q = std::move(both.q);
    gate = std::move(both.gate);
  }
  if (config.qk_norm) {
    q = norm_heads(ops, std::move(q), weights.q_norm, config.rms_norm_eps);
    k = norm_heads(ops, std::move(k), weights.k_norm, config.rms_norm_eps);
  }

  Tensor2 y = for_each_sequence(shares, [&](int first, const Share<KVCache>& share) {
    KVCache& cache = *share.state;
    const int T = share.rows, position = cache.length;
    Tensor3 query = reshape(slice(std::move(q), first, T), T, Hq, D);
    Tensor3 key = reshape(slice(std::move(k), first, T), T, Hkv, D);
    const Rotation turn = rotation(config, position, T);
    ops.rope(query, turn.cos, turn.sin);
    ops.rope(key, turn.cos, turn.sin);
    append(cache.keys, position, key);
    append(cache.values, position, reshape(slice(std::move(v), first, T), T, Hkv, D));
    cache.length = position + T;
    return ops.attention(query, cache.keys, cache.values, position);
  });

  if (config.attn_output_gate) y = ops.sigmoid_gate(y, gate);
  return ops.linear(y, weights.o_proj);
}

void check_attention(const Tensor3& q, const Tensor3& keys, const Tensor3& values, int position) {
  const int T = dim(q, 0), Hq = dim(q, 1), D = dim(q, 2);
  const int capacity = dim(keys, 0), Hkv = dim(keys, 1);
  expect_shape("[attention] keys", keys, {capacity, Hkv, D});
  expect_shape("[attention] values", values, {capacity, Hkv, D});
  if (position < 0 || position + T > capacity) {
    throw std::invalid_argument("[attention] queries at positions " + std::to_string(position) +
                                " to " + std::to_string(position + T - 1) + ", but only " +
                                std::to_string(capacity) + " keys");
  }
  if (Hq % Hkv != 0) {
    throw std::invalid_argument("[attention] " + std::to_string(Hq) + " query heads cannot share " +
                                std::to_string(Hkv) + " key/value heads evenly");
  }
}

namespace plain {

Tensor2 attention(const Tensor3& q, const Tensor3& keys, const Tensor3& values, int position) {
  check_attention(q, keys, values, position);
  const int T = dim(q, 0), Hq = dim(q, 1), D = dim(q, 2), Hkv = dim(keys, 1);
  const float scale = 1 / std::sqrt(static_cast<float>(D));
  Tensor2 y = zeros(T, Hq * D);
  std::vector<float> p(position + T);  // what the query pays to each key, adding up to 1
  for (int t = 0; t < T; ++t) {
    const int S = position + t + 1;  // keys the query sees: all up to its own
    for (int h = 0; h < Hq; ++h) {
      const int kv = h / (Hq / Hkv);
      float highest = -std::numeric_limits<float>::infinity();
      for (int s = 0; s < S; ++s) {
        float score = 0;
        for (int i = 0; i < D; ++i) score += q(t, h, i) * keys(s, kv, i);
        p[s] = score * scale;
        highest = std::max(highest, p[s]);
      }
      float sum = 0;
      for (int s = 0; s < S; ++s) sum += p[s] = std::exp(p[s] - highest);
      for (int s = 0; s < S; ++s) {
        for (int i = 0; i < D; ++i) y(t, D * h + i) += p[s] / sum * values(s, kv, i);
      }
    }
  }
  return y;
}

Tensor2 sigmoid_gate(const Tensor2& x, const Tensor2& gate) {
  const int T = dim(x, 0), N = dim(x, 1);
  expect_shape("[sigmoid_gate] gate", gate, {T, N});
  Tensor2 y = uninit(T, N);
  for (int t = 0; t < T; ++t) {
    for (int i = 0; i < N; ++i) y(t, i) = x(t, i) / (1 + std::exp(-gate(t, i)));
  }
  return y;
}

}  // namespace plain
}  // namespace qwen
