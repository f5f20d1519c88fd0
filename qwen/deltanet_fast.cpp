// The delta rule, one block of columns of S after the other.
//
// Columns of S never meet: column j needs k, q, the gates, and its own v[j]. So a block of columns
// stays in the first-level cache while all tokens pass by. A token takes one sweep over its rows:
//
//   S[i] = decay S[i] + k[i] d        write what the last recall has shown to be missing
//   o   += q[i] S[i]                  read
//   r   += k'[i] S[i]                 recall, already for the next token's key k'
//
// d = beta (v - decay r) then follows from r alone, since decay S^T k = (decay S)^T k. That makes
// four operations for each load and store, and one chain of sums per column, i ascending, for o and
// for r. Neither the width of a block nor the number of tokens in a call changes them.
#include <algorithm>
#include <cmath>
#include <vector>

#include "qwen/deltanet.h"
#include "qwen/parallel.h"
#include "qwen/simd.h"

namespace qwen {

void check_conv_qkv(const Tensor2& in, const Tensor2& kernel, const Ops::Heads& heads,
                    const Tensor2& tail);  // deltanet.cpp
void check_delta_rule(const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                      const std::vector<int>& key_head, const Tensor3& S);

namespace fast {
namespace {

using simd::kLanes;
using simd::Vec;

// A block is kVectors vectors wide; each takes three registers, for d and the sums o and r. Two
// chains for each hide the latency of a multiply-add (4 cycles, two a cycle: 8 chains) where there
// are 32 registers, half of it where there are 16.
constexpr int kVectors = simd::kRegisters / 8;
constexpr int kWidth = kVectors * kLanes;

// Elements of S times tokens that are worth a thread of their own: some 10 microseconds where S has
// to come from memory and go back, 2 where it is in a cache.
constexpr int kPiece = 32768;

// More tokens than these are worth a copy of the block: rows of S itself lie Dv floats apart: with
// 512 bytes, a block of 32 KB falls on half of L1's sets.
constexpr int kFewTokens = 4;

// How many tokens ahead memory is asked: a token takes a third of a microsecond, memory
// answers within one.
constexpr int kAhead = 4;

struct Columns {
  Vec at[kVectors];
};

// `count` columns of a row; what lies past them is 0 and is neither read nor written.
Columns load_columns(const float* p, int count) {
  Columns x{};
  for (int c = 0; c < kVectors && count > 0; ++c, p += kLanes, count -= kLanes) {
    x.at[c] = simd::load_up_to(p, count);
  }
  return x;
}
void store_columns(float* p, const Columns& x, int count) {
  for (int c = 0; c < kVectors && count > 0; ++c, p += kLanes, count -= kLanes) {
    simd::store_up_to(p, x.at[c], count);
  }
}

// S^T k over the rows of a block, `stride` apart.
[[gnu::noinline]] void recall(const float* S, int stride, int Dk, const float* k,
                              Columns& recalled) {
  Columns r{};
  for (int i = 0; i < Dk; ++i, S += stride) {
    const Vec key = simd::broadcast(k[i]);
    for (int c = 0; c < kVectors; ++c) {
      r.at[c] = simd::fma(simd::load(S + c * kLanes), key, r.at[c]);
    }
  }
  recalled = r;
}

// What a token a few steps ahead will need of one head and block. Its rows lie kilobytes from those
// of the token before, a pattern that the processor does not foresee.
struct Ahead {
  const float *k, *q;  // [Dk]
  const float *v, *o;  // [columns]
  int columns;
};

// One token's sweep. A function of its own, so that the compilers give all registers to it.
//
// It asks for what is ahead, into the second-level cache, since the first is full of S; and for a
// few lines at a time: a burst of more than the 10 to 16 misses that a core can have under way
// would hold up the sweep.
[[gnu::noinline]] void sweep(float* S, int stride, int Dk, float decay, const Columns& written,
                             const float* k, const float* q, const float* next_k,
                             const Ahead& ahead, Columns& read, Columns& recalled) {
  constexpr int kCacheLine = 16, kSecondLevel = 2;  // floats; how __builtin_prefetch counts
  const Vec keep = simd::broadcast(decay);
  const Columns d = written;
  Columns o{}, r{};
  for (int first = 0; first < Dk; first += kCacheLine) {
    __builtin_prefetch(ahead.k + first, 0, kSecondLevel);
    __builtin_prefetch(ahead.q + first, 0, kSecondLevel);
    __builtin_prefetch(ahead.v + first * ahead.columns / Dk, 0, kSecondLevel);
    __builtin_prefetch(ahead.o + first * ahead.columns / Dk, 0, kSecondLevel);
    for (int i = first; i < std::min(first + kCacheLine, Dk); ++i, S += stride) {
      const Vec key = simd::broadcast(k[i]), query = simd::broadcast(q[i]);
      const Vec next = simd::broadcast(next_k[i]);
      for (int c = 0; c < kVectors; ++c) {
        const Vec s = simd::fma(key, d.at[c], keep * simd::load(S + c * kLanes));
        simd::store(S + c * kLanes, s);
        o.at[c] = simd::fma(s, query, o.at[c]);
        r.at[c] = simd::fma(s, next, r.at[c]);
      }
    }
  }
  read = o;
  recalled = r;
}

// All tokens of one head over `count` columns, from the given one on.
struct Block {
  const Qkv& qkv;
  const Tensor2& decay;
  const Tensor2& beta;
  int head, key_head, first, count;
};
void run(const Block& b, float* S, int stride, Tensor3& o) {
  const int T = dim(b.qkv.v, 0), Dk = dim(b.qkv.k, 2), Dv = dim(b.qkv.v, 2);
  const int at_key = Dk * b.key_head, at_value = Dv * b.head + b.first;
  Columns o_t, r;
  recall(S, stride, Dk, row(b.qkv.k, 0) + at_key, r);
  for (int t = 0; t < T; ++t) {
    const float decay = b.decay(t, b.head), beta = b.beta(t, b.head);
    Columns d = load_columns(row(b.qkv.v, t) + at_value, b.count);
    for (int c = 0; c < kVectors; ++c) d.at[c] = beta * (d.at[c] - decay * r.at[c]);
    const int soon = std::min(t + kAhead, T - 1);
    const Ahead ahead{row(b.qkv.k, soon) + at_key, row(b.qkv.q, soon) + at_key,
                      row(b.qkv.v, soon) + at_value, row(o, soon) + at_value, b.count};
    const int next = std::min(t + 1, T - 1);  // after the last token nobody uses what is recalled
    sweep(S, stride, Dk, decay, d, row(b.qkv.k, t) + at_key, row(b.qkv.q, t) + at_key,
          row(b.qkv.k, next) + at_key, ahead, o_t, r);
    store_columns(row(o, t) + at_value, o_t, b.count);
  }
}

// The same from and to its place in S, in a copy where that is worth it.
void run_block(const Block& b, float* S, Tensor2& copy, Tensor3& o) {
  const int T = dim(b.qkv.v, 0), Dk = dim(copy, 0), Dv = dim(b.qkv.v, 2);
  if (T <= kFewTokens && b.count == kWidth) return run(b, S, Dv, o);
  for (int i = 0; i < Dk; ++i) {
    store_columns(row(copy, i), load_columns(S + Dv * i, b.count), kWidth);
  }
  run(b, copy.data(), kWidth, o);
  for (int i = 0; i < Dk; ++i) {
    store_columns(S + Dv * i, load_columns(row(copy, i), kWidth), b.count);
  }
}

// ---- conv_qkv ----

// Tokens that go together: each tap is loaded once for all of them.
constexpr int kTogether = 4;

// Channels times tokens that are worth a thread of their own, again some 10 microseconds.
constexpr int kConvPiece = 16384;

// Channels c … c + n - 1 of `Tokens` tokens; tap j of token t meets the row inputs[t + j]. The
// results of two tokens stand `stride` apart.
template <int Tokens>
void convolve(const float* const* inputs, const Tensor2& kernel, int c, int n, float* y,
              int stride) {
  const int width = dim(kernel, 0);
  for (int i = 0; i < n; i += kLanes) {
    Vec sum[Tokens]{};
    for (int j = 0; j < width; ++j) {
      const Vec tap = simd::load_up_to(row(kernel, j) + c + i, n - i);
      for (int t = 0; t < Tokens; ++t) {
        sum[t] = simd::fma(tap, simd::load_up_to(inputs[t + j] + c + i, n - i), sum[t]);
      }
    }
    for (int t = 0; t < Tokens; ++t) {
      simd::store_up_to(y + t * stride + i, simd::silu(sum[t]), n - i);
    }
  }
}

// x [D] to length 1, then times `scale`.
void l2_normalize(float* x, int D, float scale) {
  const Vec factor = simd::broadcast(scale / std::sqrt(simd::dot(x, x, D) + 1e-6f));
  const auto scaled = [&](Vec v) { return v * factor; };
  simd::map(D, x, scaled, x);
}

// The tokens t … t + Tokens - 1, a head of q or k at a time: it is normalised while it is in the
// first-level cache.
template <int Tokens>
void conv_qkv(const float* const* inputs, const Tensor2& kernel, int t, Qkv& y) {
  int c = 0;
  const auto normalized_heads = [&](Tensor3& x, float scale) {
    const int heads = dim(x, 1), D = dim(x, 2);
    for (int h = 0; h < heads; ++h, c += D) {
      convolve<Tokens>(inputs, kernel, c, D, row(x, t) + D * h, heads * D);
      for (int s = 0; s < Tokens; ++s) l2_normalize(row(x, t + s) + D * h, D, scale);
    }
  };
  normalized_heads(y.q, 1 / std::sqrt(static_cast<float>(dim(y.q, 2))));
  normalized_heads(y.k, 1);
  const int N = dim(y.v, 1) * dim(y.v, 2);
  convolve<Tokens>(inputs, kernel, c, N, row(y.v, t), N);
}

}  // namespace

Qkv conv_qkv(const Tensor2& in, const Tensor2& kernel, const Ops::Heads& heads, Tensor2& tail) {
  check_conv_qkv(in, kernel, heads, tail);
  const int T = dim(in, 0), C = dim(in, 1), kept = dim(tail, 0);
  const auto [Hk, Dk, Hv, Dv] = heads;
  Qkv y{uninit(T, Hk, Dk), uninit(T, Hk, Dk), uninit(T, Hv, Dv)};
  const int grain = kTogether * std::max(1, kConvPiece / C / kTogether);
  parallel_for(T, grain, [&](int begin, int end) {
    std::vector<const float*> inputs;
    for (int s = begin - kept; s < end; ++s) {
      inputs.push_back(s >= 0 ? row(in, s) : row(tail, s + kept));  // before 0: in the tail
    }
    const float* const* oldest = inputs.data();
    int t = begin;
    for (; t + kTogether <= end; t += kTogether, oldest += kTogether) {
      conv_qkv<kTogether>(oldest, kernel, t, y);
    }
    for (; t < end; ++t, ++oldest) conv_qkv<1>(oldest, kernel, t, y);
  });
  move_tail(in, tail);
  return y;
}

Tensor3 delta_rule(const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                   const std::vector<int>& key_head, Tensor3& S) {
  check_delta_rule(qkv, g, beta, key_head, S);
  const int T = dim(qkv.v, 0), Hv = dim(qkv.v, 1), Dv = dim(qkv.v, 2), Dk = dim(qkv.k, 2);
  Tensor2 decay = uninit(T, Hv);
  for (int t = 0; t < T; ++t) {
    simd::map(
        Hv, row(decay, t), [](Vec x) { return simd::exp(x); }, row(g, t));
  }

  Tensor3 o = uninit(T, Hv, Dv);
  // Whole heads: with blocks as pieces a layer took a fifth longer.
  const int grain = std::max(1, kPiece / (Dk * Dv) / T);
  parallel_for(Hv, grain, [&](int begin, int end) {
    Tensor2 copy = uninit(Dk, kWidth);
    for (int h = begin; h < end; ++h) {
      for (int first = 0; first < Dv; first += kWidth) {
        const int count = std::min(kWidth, Dv - first);
        run_block({qkv, decay, beta, h, key_head[h], first, count}, row(S, h) + first, copy, o);
      }
    }
  });
  return o;
}

}  // namespace fast
}  // namespace qwen
