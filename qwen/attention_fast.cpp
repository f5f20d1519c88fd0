// Attention over blocks of keys, with a softmax that is put together block by block.
//
//   keys      ├── block 0 ──┼── block 1 ──┼── block 2 ──┼─ …     kBlock keys each, from key 0 on
//   a query    (max, sum, out) of each block, from zero
//              merged into its running (max, sum, out), block 0 first
//
// One order of arithmetic: what a block gives to a query depends on that query and that block
// alone, and blocks are merged in ascending order. Which queries are computed together, and on how
// many threads, changes nothing. Keys that a query does not see are skipped, not multiplied by
// zero.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "qwen/attention.h"
#include "qwen/parallel.h"
#include "qwen/shape.h"
#include "qwen/simd.h"

namespace qwen {

void check_attention(const Tensor3& q, const Tensor3& keys, const Tensor3& values,
                     int position);  // attention.cpp

namespace fast {
namespace {

using simd::kLanes;
using simd::Vec;

constexpr int kBlock = 64;  // keys; part of the arithmetic
constexpr int kRows = 64;   // queries that share a block while it is in the cache; not part of it
constexpr int kTile = 4;    // at most so many queries in registers together
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Elements of keys and values worth a thread of their own: some 10 microseconds.
constexpr int kPiece = 65536;

constexpr int kSums = simd::kRegisters / 2;  // accumulators of a tile

// Rows of D floats in memory.
struct Rows {
  const float* data;
  std::ptrdiff_t stride;
  const float* operator[](int i) const { return data + i * stride; }
};

// Queries of one key/value head, and where their results go. Row r is token r / group and head
// r % group of those that share the key/value head.
struct Queries {
  const float* q;  // of row 0
  float* y;
  int rows, group, D;
  std::ptrdiff_t stride;  // from token to token
  int position;           // of row 0
  float scale;

  std::ptrdiff_t offset(int r) const { return r / group * stride + r % group * D; }
  // How many keys of the block from `first` on row r sees.
  int visible(int r, int first) const {
    return std::clamp(position + r / group + 1 - first, 0, kBlock);
  }
};

// scores[r, s] = q[r] · k[s] * scale for R queries and the first n keys of a block, in steps of
// kSums / R keys; q and k are walked once along D. Past n the last key is repeated: what it gives
// there is not used.
template <int R>
[[gnu::noinline]] void score(const float* const* q, Rows keys, int n, int D, float scale,
                             float* scores) {
  constexpr int C = kSums / R;
  for (int s = 0; s < n; s += C) {
    const float* k[C];
    for (int c = 0; c < C; ++c) k[c] = keys[std::min(s + c, n - 1)];
    Vec sum[R][C]{};
    for (int i = 0; i < D; i += kLanes) {
      Vec k_i[C];
      for (int c = 0; c < C; ++c) {
        k_i[c] = simd::load_up_to(k[c] + i, D - i);
        simd::pin(k_i[c]);
      }
      for (int r = 0; r < R; ++r) {
        const Vec q_i = simd::load_up_to(q[r] + i, D - i);
        for (int c = 0; c < C; ++c) sum[r][c] = simd::fma(q_i, k_i[c], sum[r][c]);
      }
    }
    Vec flat[R * C];
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C; ++c) flat[r * C + c] = sum[r][c];
    }
    float total[R * C];
    for (int i = 0; i < R * C; i += kLanes)
      simd::store(total + i, simd::sum_each(flat + i) * scale);
    for (int r = 0; r < R; ++r) std::copy_n(total + r * C, C, scores + r * kBlock + s);
  }
}

// scores [kBlock], of which n are set -> exp(score - max), zeros from n on; also their sum.
struct Softmax {
  float max, sum;
};
Softmax exponentials(float* scores, int n) {
  std::fill(scores + n, scores + kBlock, -kInfinity);
  Vec highest = simd::load(scores);
  for (int s = kLanes; s < kBlock; s += kLanes) {
    highest = simd::larger(highest, simd::load(scores + s));
  }
  const float max = simd::max(highest);
  Vec sum{};
  for (int s = 0; s < kBlock; s += kLanes) {
    const Vec p = simd::exp(simd::load(scores + s) - max);
    simd::store(scores + s, p);
    sum += p;
  }
  return {max, simd::sum(sum)};
}

// out[r] = sum over s < n of p[r, s] v[s], s ascending, for R queries.
template <int R>
[[gnu::noinline]] void weigh(const float* p, Rows values, int n, int D, float* out) {
  constexpr int C = kSums / kTile;
  for (int i = 0; i < D; i += C * kLanes) {
    Vec sum[R][C]{};
    for (int s = 0; s < n; ++s) {
      Vec v[C];
      for (int c = 0; c < C; ++c) {
        const int at = i + c * kLanes;
        v[c] = at < D ? simd::load_up_to(values[s] + at, D - at) : Vec{};
        simd::pin(v[c]);
      }
      for (int r = 0; r < R; ++r) {
        const Vec p_r = simd::broadcast(p[r * kBlock + s]);
        for (int c = 0; c < C; ++c) sum[r][c] = simd::fma(p_r, v[c], sum[r][c]);
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C; ++c) {
        const int at = i + c * kLanes;
        if (at < D) simd::store_up_to(out + r * D + at, sum[r][c], D - at);
      }
    }
  }
}

// ---- a block and the queries that meet it ----

struct Block {
  Rows keys, values;
  int first;  // position of its first key
};

// Queries at … at + R - 1, which all see n keys of the block.
template <int R>
void tile(const Queries& x, int at, const Block& block, int n, Softmax* softmax, float* out) {
  const float* q[R];
  for (int r = 0; r < R; ++r) q[r] = x.q + x.offset(at + r);
  float scores[R * kBlock];
  score<R>(q, block.keys, n, x.D, x.scale, scores);
  for (int r = 0; r < R; ++r) softmax[at + r] = exponentials(scores + r * kBlock, n);
  weigh<R>(scores, block.values, n, x.D, out + at * x.D);
}

// softmax [rows], out [rows, D]: what the block gives to each of the queries that see some of it.
void attend(const Queries& x, const Block& block, Softmax* softmax, float* out) {
  const auto visible = [&](int r) { return r < x.rows ? x.visible(r, block.first) : -1; };
  int r = 0;
  while (visible(r) == 0) ++r;
  while (r < x.rows) {
    const int n = visible(r);
    if (visible(r + 3) == n) {
      tile<4>(x, r, block, n, softmax, out);
      r += 4;
    } else if (visible(r + 1) == n) {
      tile<2>(x, r, block, n, softmax, out);
      r += 2;
    } else {
      tile<1>(x, r, block, n, softmax, out);
      r += 1;
    }
  }
}

// The block's gifts join those of the blocks before it: total [rows] and y.
void merge(const Queries& x, int first, const Softmax* softmax, const float* out, Softmax* total) {
  for (int r = 0; r < x.rows; ++r) {
    if (x.visible(r, first) == 0) continue;
    const float max = std::max(total[r].max, softmax[r].max);
    const float keep = simd::exp(total[r].max - max), add = simd::exp(softmax[r].max - max);
    total[r] = {max, total[r].sum * keep + softmax[r].sum * add};
    const auto join = [&](Vec y, Vec o) { return simd::fma(o, simd::broadcast(add), y * keep); };
    float* y = x.y + x.offset(r);
    simd::map(x.D, y, join, y, out + r * x.D);
  }
}

void divide_by_sum(const Queries& x, const Softmax* total) {
  for (int r = 0; r < x.rows; ++r) {
    const auto share = [&](Vec y) { return y / total[r].sum; };
    float* y = x.y + x.offset(r);
    simd::map(x.D, y, share, y);
  }
}

// ---- the whole: views of its parts, and two ways to share out the work ----

struct Problem {
  const Tensor3 &q, &keys, &values;
  int position;
  Tensor2& y;

  int T() const { return dim(q, 0); }
  int D() const { return dim(q, 2); }
  int kv_heads() const { return dim(keys, 1); }
  int group() const { return dim(q, 1) / kv_heads(); }
  int blocks(int tokens) const { return (position + tokens - 1) / kBlock + 1; }

  Queries queries(int kv, int t, int tokens) const {
    const std::ptrdiff_t stride = dim(q, 1) * D(), start = t * stride + kv * group() * D();
    const float scale = 1 / std::sqrt(static_cast<float>(D()));
    return {q.data() + start,
            y.data() + start,
            tokens * group(),
            group(),
            D(),
            stride,
            position + t,
            scale};
  }
  Block block(int kv, int b) const {
    const std::ptrdiff_t stride = kv_heads() * D(), start = b * kBlock * stride + kv * D();
    return {{keys.data() + start, stride}, {values.data() + start, stride}, b * kBlock};
  }
};

constexpr Softmax kNothing{-kInfinity, 0};

// Many queries: each piece takes some of them through all blocks. The last ones see most and come
// first, so that no thread is left alone with a long piece at the end.
void by_queries(const Problem& problem) {
  const int tokens = std::max(1, kRows / problem.group()), T = problem.T();
  const int units = (T + tokens - 1) / tokens, kv_heads = problem.kv_heads(), D = problem.D();
  const int grain = std::max(1, kPiece / (2 * D) / (problem.position + T));
  parallel_for(units * kv_heads, grain, [&](int begin, int end) {
    const int rows = tokens * problem.group();
    std::vector<Softmax> softmax(rows), total(rows);
    Tensor2 out = uninit(rows, D);
    for (int n = begin; n < end; ++n) {
      const int kv = n % kv_heads, t = (units - 1 - n / kv_heads) * tokens;
      const Queries x = problem.queries(kv, t, std::min(tokens, T - t));
      std::fill(total.begin(), total.end(), kNothing);
      for (int b = 0; b < problem.blocks(t + x.rows / x.group); ++b) {
        attend(x, problem.block(kv, b), softmax.data(), out.data());
        merge(x, b * kBlock, softmax.data(), out.data(), total.data());
      }
      divide_by_sum(x, total.data());
    }
  });
}

// Few queries and a long past: pieces are blocks; what each gives is kept, then merged in order.
void by_blocks(const Problem& problem) {
  const int rows = problem.T() * problem.group(), blocks = problem.blocks(problem.T());
  const int kv_heads = problem.kv_heads(), D = problem.D();
  std::vector<Softmax> softmax(kv_heads * blocks * rows);
  Tensor2 out = uninit(kv_heads * blocks * rows, D);
  parallel_for(kv_heads * blocks, std::max(1, kPiece / (2 * D) / kBlock), [&](int begin, int end) {
    for (int n = begin; n < end; ++n) {
      const Queries x = problem.queries(n % kv_heads, 0, problem.T());
      const Block block = problem.block(n % kv_heads, n / kv_heads);
      attend(x, block, softmax.data() + n * rows, row(out, n * rows));
    }
  });
  parallel_for(kv_heads, std::max(1, kPiece / D / (blocks * rows)), [&](int begin, int end) {
    for (int kv = begin; kv < end; ++kv) {
      const Queries x = problem.queries(kv, 0, problem.T());
      std::vector<Softmax> total(rows, kNothing);
      for (int b = 0; b < blocks; ++b) {
        const int n = (b * kv_heads + kv) * rows;
        merge(x, b * kBlock, softmax.data() + n, row(out, n), total.data());
      }
      divide_by_sum(x, total.data());
    }
  });
}

}  // namespace

Tensor2 attention(const Tensor3& q, const Tensor3& keys, const Tensor3& values, int position) {
  check_attention(q, keys, values, position);
  Tensor2 y = zeros(dim(q, 0), dim(q, 1) * dim(q, 2));
  const Problem problem{q, keys, values, position, y};
  const bool few = problem.T() * problem.group() <= 4 * kTile;
  if (few && position >= 4 * kBlock) {
    by_blocks(problem);
  } else {
    by_queries(problem);
  }
  return y;
}

Tensor2 sigmoid_gate(const Tensor2& x, const Tensor2& gate) {
  const int T = dim(x, 0), N = dim(x, 1);
  expect_shape("[sigmoid_gate] gate", gate, {T, N});
  Tensor2 y = uninit(T, N);
  parallel_for(T, std::max(1, 16384 / N), [&](int begin, int end) {
    for (int t = begin; t < end; ++t) {
      const auto gated = [](Vec v, Vec g) { return v * simd::sigmoid(g); };
      simd::map(N, row(y, t), gated, row(x, t), row(gate, t));
    }
  });
  return y;
}

}  // namespace fast
}  // namespace qwen
