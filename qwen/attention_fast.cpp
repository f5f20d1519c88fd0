// Attention over blocks of keys, with a softmax that is put together block by block.
//
//   keys      ├── block 0 ──┼── block 1 ──┼── block 2 ──┼─ …     kBlock keys each, from key 0 on
//   a query    (max, sum, out) of each block, from zero
//              merged into its running (max, sum, out), block 0 first
//
// The two products of a block, scores = q K^T and out = p V, are those of attention_product.h.
//
// One order of arithmetic: what a block gives to a query depends on that query and that block
// alone, and blocks are merged in ascending order. Which queries are computed together, and on how
// many threads, changes nothing. The score of a key that a query does not see may be computed
// beside those of others; it is not used, and the key's value is not read.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "qwen/attention.h"
#include "qwen/attention_product.h"
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

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Queries that share a block while it is in the second-level cache; not part of the arithmetic. To
// transpose the block costs as much as 4 to 8 of them, whether they are few or many.
constexpr int kMinRows = 64, kMaxRows = 256;

// So few queries of a long past are not worth a thread each: its blocks are shared out.
constexpr int kFewRows = 16, kFewBlocks = 4;

// Elements of keys and values worth a thread of their own: some 10 microseconds.
constexpr int kPiece = 65536;

// ---- a block and the queries that meet it ----

// Queries that share a key/value head: all heads of a token, then those of the next one.
struct Queries {
  int D;
  float scale;
  std::vector<const float*> q;
  std::vector<float*> y;  // where the results go
  std::vector<int> seen;  // keys that each sees, from key 0 on

  int rows() const { return static_cast<int>(q.size()); }
  // How many keys of the block from `first` on row r sees.
  int visible(int r, int first) const { return std::clamp(seen[r] - first, 0, kBlock); }
  int first_visible(int first) const {
    int r = 0;
    while (visible(r, first) == 0) ++r;
    return r;
  }
};

// The largest of n scores. The last vector's other lanes become -infinity: their weight will be 0.
float largest(float* scores, int n) {
  if (const int s = n / kLanes * kLanes; s < n) {
    simd::VecInt lane;
    for (int l = 0; l < kLanes; ++l) lane[l] = l;
    const Vec v = simd::load(scores + s);
    simd::store(scores + s, lane < n - s ? v : simd::broadcast(-kInfinity));
  }
  Vec highest = simd::load(scores);
  for (int s = kLanes; s < n; s += kLanes) highest = simd::larger(highest, simd::load(scores + s));
  return simd::max(highest);
}

// n scores -> exp(score * scale - max); returns their sum, lane by lane.
Vec exponentials(float* scores, int n, float scale, float max) {
  Vec sum{};
  for (int s = 0; s < n; s += kLanes) {
    const Vec p = simd::exp(simd::load(scores + s) * scale - max);
    simd::store(scores + s, p);
    sum += p;
  }
  return sum;
}

// What blocks give to rows of queries: max [rows], sum [rows], out [rows, padded(D)].
struct Gift {
  float *max, *sum, *out;
  int width;  // padded(D)

  Gift from(int r) const { return {max + r, sum + r, out + r * width, width}; }
};

// What a block gives to the queries r … r + rows - 1, at most kTile. Each step runs over all rows
// before the next one begins: a row alone is one long chain of dependent instructions.
void attend(const Queries& x, int r, int rows, int first, const Operands& block, Gift gift) {
  float scores[kTile * kBlock];
  float* p[kTile];
  int n[kTile];
  Vec sum[kTile];
  for (int i = 0; i < rows; ++i) {
    p[i] = scores + i * kBlock;
    n[i] = x.visible(r + i, first);
  }
  const int most = x.visible(r + rows - 1, first);
  product(rows, &x.q[r], block.keys(), x.D, most, scores, kBlock);
  for (int i = 0; i < rows; ++i) gift.max[i] = largest(p[i], n[i]) * x.scale;
  for (int i = 0; i < rows; ++i) sum[i] = exponentials(p[i], n[i], x.scale, gift.max[i]);
  for (int i = 0; i < rows; ++i) gift.sum[i] = simd::sum(sum[i]);
  for (int i = 0, end; i < rows; i = end) {
    end = i + 1;
    while (end < rows && n[end] == n[i]) ++end;
    product(end - i, p + i, block.values(), n[i], x.D, gift.out + i * gift.width, gift.width);
  }
}

// The results of no block.
void clear(const Queries& x, float* max, float* sum) {
  std::fill_n(max, x.rows(), -kInfinity);
  std::fill_n(sum, x.rows(), 0.0f);
  for (float* y : x.y) std::fill_n(y, x.D, 0.0f);
}

// A block's gift joins those of the blocks before it: max, sum and y of the queries from r on.
void merge(const Queries& x, int r, int rows, Gift gift, float* max, float* sum) {
  for (int i = 0; i < rows; ++i) {
    const float highest = std::max(max[r + i], gift.max[i]);
    const Vec weights = simd::exp(Vec{max[r + i], gift.max[i]} - highest);
    const float keep = weights[0], add = weights[1];
    max[r + i] = highest;
    sum[r + i] = sum[r + i] * keep + gift.sum[i] * add;
    const auto join = [&](Vec y, Vec o) { return simd::fma(o, simd::broadcast(add), y * keep); };
    simd::map(x.D, x.y[r + i], join, x.y[r + i], gift.out + i * gift.width);
  }
}

void divide_by_sum(const Queries& x, const float* sum) {
  for (int r = 0; r < x.rows(); ++r) {
    const float share = 1 / sum[r];
    simd::map(
        x.D, x.y[r], [&](Vec y) { return y * share; }, x.y[r]);
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

  // Of the tokens t … end - 1.
  Queries queries(int kv, int t, int end) const {
    Queries x{D(), 1 / std::sqrt(static_cast<float>(D())), {}, {}, {}};
    for (; t < end; ++t) {
      for (int h = kv * group(); h < (kv + 1) * group(); ++h) {
        x.q.push_back(row(q, t) + h * D());
        x.y.push_back(row(y, t) + h * D());
        x.seen.push_back(position + t + 1);
      }
    }
    return x;
  }
  Block block(int kv, int b) const {
    const std::ptrdiff_t stride = kv_heads() * D(), start = b * kBlock * stride + kv * D();
    const int first = b * kBlock, count = std::min(kBlock, position + T() - first);
    return {{keys.data() + start, stride}, {values.data() + start, stride}, first, count};
  }
};

// Queries to take through all blocks together: four pieces for each thread, within the bounds.
int tokens_together(const Problem& problem) {
  const int even = problem.T() * problem.kv_heads() / (4 * thread_count());
  const int group = problem.group();
  return std::max(1, std::clamp(even, kMinRows / group, kMaxRows / group));
}

// Many queries: each piece takes some of them through all blocks. The last ones see most and come
// first, so that no thread is left alone with a long piece at the end.
void by_queries(const Problem& problem) {
  const int tokens = tokens_together(problem), T = problem.T(), D = problem.D();
  const int units = (T + tokens - 1) / tokens, kv_heads = problem.kv_heads();
  const int grain = std::max(1, kPiece / (2 * D) / (problem.position + T));
  parallel_for(units * kv_heads, grain, [&](int begin, int end) {
    Operands block(D);
    std::vector<float> max(tokens * problem.group()), sum(max.size());
    Tensor2 out = uninit(kTile, padded(D));
    float tile_max[kTile], tile_sum[kTile];
    const Gift gift{tile_max, tile_sum, out.data(), padded(D)};
    for (int n = begin; n < end; ++n) {
      const int kv = n % kv_heads, t = (units - 1 - n / kv_heads) * tokens;
      const int last = std::min(t + tokens, T);
      const Queries x = problem.queries(kv, t, last);
      clear(x, max.data(), sum.data());
      for (int b = 0; b < problem.blocks(last); ++b) {
        const int first = b * kBlock;
        block.prepare(problem.block(kv, b));
        for (int r = x.first_visible(first), rows; r < x.rows(); r += rows) {
          rows = std::min(kTile, x.rows() - r);
          attend(x, r, rows, first, block, gift);
          merge(x, r, rows, gift, max.data(), sum.data());
        }
      }
      divide_by_sum(x, sum.data());
    }
  });
}

// Few queries and a long past: pieces are blocks; what each gives is kept, then merged in order.
void by_blocks(const Problem& problem) {
  const int T = problem.T(), D = problem.D(), rows = T * problem.group();
  const int blocks = problem.blocks(T), kv_heads = problem.kv_heads();
  std::vector<Queries> queries;
  for (int kv = 0; kv < kv_heads; ++kv) queries.push_back(problem.queries(kv, 0, T));
  Tensor2 max = uninit(kv_heads * blocks, rows), sum = uninit(kv_heads * blocks, rows);
  Tensor2 out = uninit(kv_heads * blocks * rows, padded(D));
  const Gift all{max.data(), sum.data(), out.data(), padded(D)};
  parallel_for(kv_heads * blocks, std::max(1, kPiece / (2 * D) / kBlock), [&](int begin, int end) {
    Operands block(D);
    for (int n = begin; n < end; ++n) {
      const Queries& x = queries[n % kv_heads];
      const int first = n / kv_heads * kBlock;
      block.prepare(problem.block(n % kv_heads, n / kv_heads));
      for (int r = x.first_visible(first); r < rows; r += kTile) {
        attend(x, r, std::min(kTile, rows - r), first, block, all.from(n * rows + r));
      }
    }
  });
  parallel_for(kv_heads, std::max(1, kPiece / D / (blocks * rows)), [&](int begin, int end) {
    std::vector<float> total_max(rows), total_sum(rows);
    for (int kv = begin; kv < end; ++kv) {
      const Queries& x = queries[kv];
      clear(x, total_max.data(), total_sum.data());
      for (int b = 0; b < blocks; ++b) {
        const int r = x.first_visible(b * kBlock);
        const Gift gift = all.from((b * kv_heads + kv) * rows + r);
        merge(x, r, rows - r, gift, total_max.data(), total_sum.data());
      }
      divide_by_sum(x, total_sum.data());
    }
  });
}

}  // namespace

Tensor2 attention(const Tensor3& q, const Tensor3& keys, const Tensor3& values, int position) {
  check_attention(q, keys, values, position);
  Tensor2 y = uninit(dim(q, 0), dim(q, 1) * dim(q, 2));
  const Problem problem{q, keys, values, position, y};
  const bool few = problem.T() * problem.group() <= kFewRows;
  if (few && position >= kFewBlocks * kBlock) {
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
