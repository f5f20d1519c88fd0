// The two products of attention_fast.cpp, and a block of keys and values as they read it.
//
//   scores = q K^T  [rows, kBlock]        out = p V  [rows, D]
//
// Both have their vectors along the columns of the right side, so that nothing is ever added across
// lanes. V lies in the cache as the product reads it, K is transposed, once for all queries that
// meet the block.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "qwen/simd.h"
#include "qwen/tensor.h"

namespace qwen::fast {

using simd::kLanes;
using simd::Vec;

inline constexpr int kBlock = 64;  // keys; part of the arithmetic

// Rows of floats in memory.
struct Rows {
  const float* data;
  std::ptrdiff_t stride;
  const float* operator[](int i) const { return data + i * stride; }
};

// ---- the product ----

// A tile's sums fill at most half of the registers: 8 rows by 2 vectors (4 by 2 where there are 16
// registers) take 10 loads for 16 multiply-adds. Fewer rows leave room for more vectors.
inline constexpr int kSums = simd::kRegisters / 2;
inline constexpr int kTile = kSums / 2;

// Rows of b are asked for this many rows ahead. One head's row of values is a piece of a longer
// one, a pattern in which the hardware sees nothing to read ahead.
inline constexpr int kAhead = 8;

// y[r, i] = sum over j < n of a[r][j] b[j, i] for R rows: one chain of multiply-adds, j ascending.
// Up to C * kLanes - 1 columns more than asked for are computed: y and b must have room for them.
template <int R>
[[gnu::noinline]] void tile(const float* const* a, Rows b, int n, int columns, float* y,
                            std::ptrdiff_t y_stride) {
  constexpr int C = std::min<int>(std::bit_floor<unsigned>(kSums / R), kBlock / kLanes);
  const float* a_row[R];
  std::copy_n(a, R, a_row);
  for (int i = 0; i < columns; i += C * kLanes) {
    Vec sum[R][C]{};
    for (int j = 0; j < n; ++j) {
      Vec b_j[C];
      for (int c = 0; c < C; ++c) {
        b_j[c] = simd::load(b[j] + i + c * kLanes);
        simd::pin(b_j[c]);
        __builtin_prefetch(b[j + kAhead] + i + c * kLanes);
      }
      for (int r = 0; r < R; ++r) {
        Vec a_rj = simd::broadcast(a_row[r][j]);
        simd::pin(a_rj);
        for (int c = 0; c < C; ++c) sum[r][c] = simd::fma(a_rj, b_j[c], sum[r][c]);
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C; ++c) simd::store(y + r * y_stride + i + c * kLanes, sum[r][c]);
    }
  }
}

// The same for 1 … kTile rows.
inline void product(int rows, const float* const* a, Rows b, int n, int columns, float* y,
                    std::ptrdiff_t y_stride) {
  simd::with_rows<kTile>(rows, [&](auto r) { tile<r>(a, b, n, columns, y, y_stride); });
}

// Columns of D floats as the product takes them.
inline int padded(int D) {
  return (D + kBlock - 1) / kBlock * kBlock;
}

// ---- a block, as the product reads it ----

struct Block {
  Rows keys, values;
  int first;  // position of its first key
  int count;  // keys that there are
};

// a0 b0 a1 b1 … from the lower halves of a and b, then from the upper ones.
template <int... Lane>
void interleave(Vec a, Vec b, Vec* y, std::integer_sequence<int, Lane...>) {
  y[0] = __builtin_shufflevector(a, b, (Lane % 2 * kLanes + Lane / 2)...);
  y[1] = __builtin_shufflevector(a, b, (Lane % 2 * kLanes + Lane / 2 + kLanes / 2)...);
}

// v [kLanes, kLanes] -> its transpose. Element (row, column) has the address row * kLanes + column;
// interleaving both halves of v turns all bits of the address by one place, so log2(kLanes) times
// exchange row and column.
inline void transpose(Vec* v) {
  constexpr std::make_integer_sequence<int, kLanes> lanes;
  for (int step = 1; step < kLanes; step *= 2) {
    Vec turned[kLanes];
    for (int i = 0; i < kLanes / 2; ++i) {
      interleave(v[i], v[i + kLanes / 2], turned + 2 * i, lanes);
    }
    std::copy_n(turned, kLanes, v);
  }
}

// n keys [n, D] -> columns [D, kBlock]. Past n the last key is repeated up to a whole vector: what
// it gives there is not used.
[[gnu::noinline]] inline void transpose_keys(Rows keys, int n, int D, float* columns) {
  constexpr int kSecondLevel = 2;  // the cache where the next keys are to wait
  for (int s = 0; s < n; s += kLanes) {
    const float* key[kLanes];
    for (int l = 0; l < kLanes; ++l) key[l] = keys[std::min(s + l, n - 1)];
    const auto square = [&](int d, auto load) {
      Vec v[kLanes];
      for (int l = 0; l < kLanes; ++l) {
        v[l] = load(key[l] + d);
        __builtin_prefetch(key[l] + d + kLanes * keys.stride, 0, kSecondLevel);
      }
      transpose(v);
      for (int l = 0; l < kLanes; ++l) simd::store(columns + (d + l) * kBlock + s, v[l]);
    };
    int d = 0;
    for (; d + kLanes <= D; d += kLanes) square(d, simd::load);
    if (d < D) square(d, [&](const float* p) { return simd::load_first(p, D - d); });
  }
}

// Prepares one block after the other.
class Operands {
 public:
  explicit Operands(int D) : D_(D), columns_(uninit(padded(D), kBlock)) {
    if (D % kBlock != 0) copy_ = zeros(kBlock, padded(D));
  }

  void prepare(const Block& block) {
    transpose_keys(block.keys, block.count, D_, columns_.data());
    values_ = block.values;
    if (D_ % kBlock == 0) return;
    for (int s = 0; s < block.count; ++s) std::copy_n(values_[s], D_, row(copy_, s));
    values_ = {copy_.data(), padded(D_)};
  }
  Rows keys() const { return {columns_.data(), kBlock}; }  // [D, kBlock]
  Rows values() const { return values_; }                  // [kBlock, padded(D)]

 private:
  int D_;
  Tensor2 columns_, copy_;  // the copy only where values are no whole columns of the product
  Rows values_{};
};

}  // namespace qwen::fast
