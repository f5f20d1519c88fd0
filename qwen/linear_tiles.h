// The kernels of linear_fast.cpp: sums of products of rows of x and rows of W, lane by lane.
//
//            k →                       A tile keeps R x C sums in registers and walks along K. Each
//        w0 ▓▓░░░░░░                   step loads one vector of each of its C rows of W and of its
//        w1 ▓▓░░░░░░                   R rows of x and multiplies every pair: R + C loads for R * C
//     x0 ▓▓  · ·                       multiply-adds. Both lie along K in memory, so nothing is
//     x1 ▓▓  · ·                       transposed.
//
// One order of arithmetic: a sum belongs to one (row of x, row of W), is one vector accumulator
// from k = 0 to K, and is added up by one tree at the end. Neither the tile it falls into, nor the
// number of rows, nor the number of threads changes a bit of it.
//
// The C rows of W of a tile are a strip. Few rows of x wait for memory: they walk along strip after
// strip. Many rows wait for the multiply-adds: they meet a strip in tiles, from a copy in L1.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "qwen/linear_formats.h"
#include "qwen/parallel.h"
#include "qwen/simd.h"
#include "qwen/tensor.h"
#include "qwen/weights.h"

namespace qwen::fast {

// ---- x ----
// K is cut into blocks of 4 KB of vectors a row: six rows of W (25 KB) stay in L1 while the rows of
// x, four at a time (16 KB), pass by from L2. The cache line between two rows keeps equal columns
// from sharing a place in L1.
inline constexpr int kBlockVectors = 4096 / sizeof(Vec);
inline constexpr int kStride = kBlockVectors * kLanes + 16;  // floats

template <class Format>
inline constexpr int kBlock = kBlockVectors / Format::kParts* Format::kStep;  // elements
template <class Format>
inline constexpr std::size_t kBlockBytes = kBlock<Format> / Format::kStep* kStepBytes;  // of W

// x as vectors: block by block, all rows together in each; the last step of a row is filled up
// with zeros.
struct Inputs {
  int rows;
  Tensor2 vectors;  // [blocks * rows, kStride]
  const float* row(int block, int t) const { return qwen::row(vectors, block * rows + t); }
};

// x [T, K]
template <class Format>
Inputs prepare(const Tensor2& x) {
  const int T = dim(x, 0), K = dim(x, 1), blocks = (K + kBlock<Format> - 1) / kBlock<Format>;
  Inputs inputs{T, uninit(blocks * T, kStride)};
  parallel_for(T, 32, [&](int begin, int end) {  // 32 rows: 128 KB where K is 1024
    for (int block = 0; block < blocks; ++block) {
      for (int t = begin; t < end; ++t) {
        float* to = row(inputs.vectors, block * T + t);
        const auto append = [&](const float* from) {
          for (int part = 0; part < Format::kParts; ++part, to += kLanes) {
            simd::store(to, Format::input(from, part));
          }
        };
        const int stop = std::min(K, (block + 1) * kBlock<Format>);
        int k = block * kBlock<Format>;
        for (; k + Format::kStep <= stop; k += Format::kStep) append(row(x, t) + k);
        if (k == stop) continue;
        float last[Format::kStep] = {};
        std::copy(row(x, t) + k, row(x, t) + stop, last);
        append(last);
      }
    }
  });
  return inputs;
}

// ---- the end of a row ----

// The last, incomplete step of C rows of W, of which `left` elements stand at `from`, filled up
// with zeros: nothing is read past the rows' end.
template <class Format, int C>
struct LastStep {
  std::byte bytes[C][kStepBytes];
  const std::byte* rows[C];
  void copy(const std::byte* const (&w)[C], std::size_t from, int left) {
    constexpr int kElement = kStepBytes / Format::kStep;
    std::memset(bytes, 0, sizeof bytes);
    for (int c = 0; c < C; ++c) {
      rows[c] = bytes[c];
      std::memcpy(bytes[c], w[c] + from, static_cast<std::size_t>(left) * kElement);
    }
  }
};

// ---- one vector of every row: sum[r][c] += x[r] · w[c] ----
template <class Format, int R, int C>
[[gnu::always_inline]] inline void add_products(const float* x, const Vec (&w)[C],
                                                Vec (&sum)[R][C]) {
  for (int r = 0; r < R; ++r) {
    Vec x_k = simd::load(x + r * kStride);
    simd::pin(x_k);
    for (int c = 0; c < C; ++c) sum[r][c] = Format::multiply_add(x_k, w[c], sum[r][c]);
  }
}

// ---- few rows of x ----

// A step: a vector's bytes of C rows of W, which become kParts vectors.
template <class Format, int R, int C>
[[gnu::always_inline]] inline void add_step(const float* x, const std::byte* const (&w)[C],
                                            std::size_t at, Vec (&sum)[R][C]) {
  for (int part = 0; part < Format::kParts; ++part) {
    Vec w_k[C];
    for (int c = 0; c < C; ++c) {
      w_k[c] = Format::weight(w[c] + at, part);
      simd::pin(w_k[c]);
    }
    add_products<Format>(x + part * kLanes, w_k, sum);
  }
}

// Where the rows of W of strip after strip lie: row c of strip i is first + i * step + c * apart.
// Where the rows of a strip are read straight on, they ask for what is `ahead` bytes further on; 0
// where they are adjacent.
struct Strips {
  int first, count, step, apart, ahead;
};

// R rows of x, from `first` on, meet strips of C rows of W:
// sums[(i * R + r) * C + c] = x[first + r] · w[row c of strip i], lane by lane.
//
// The sums stay in registers from k = 0 to K. W is read where it lies, once. The hardware reads
// ahead by itself, but starts anew where a row does not follow the one before: in adjacent strips
// each row is over before it has noticed. There each cache line asks for the one a block further on
// in its row, or in the row that takes its place in the next strip. Where the rows of a strip are
// apart, each place is read straight on, and asks a little ahead.
template <class Format, int R, int C>
[[gnu::noinline]] void walk(const Inputs& inputs, int first, const Weight& w, const Strips& strips,
                            Vec* sums) {
  constexpr int kSteps = std::max<int>(1, 64 / kStepBytes);  // in a cache line
  constexpr int kStepFloats = Format::kParts * kLanes;       // of x
  const std::size_t length = row_bytes(w);
  for (int i = 0, n = strips.first; i < strips.count; ++i, n += strips.step, sums += R * C) {
    const std::byte* rows[C];
    for (int c = 0; c < C; ++c) rows[c] = row(w, n + c * strips.apart, length);
    Vec sum[R][C]{};
    std::size_t to_next_strip = C * length;
    for (int k = 0, block = 0; k < w.cols; k += kBlock<Format>, ++block) {
      const int count = std::min(kBlock<Format>, w.cols - k), left = count % Format::kStep;
      const std::size_t end = static_cast<std::size_t>(count / Format::kStep) * kStepBytes;
      const std::size_t next = strips.ahead > 0     ? strips.ahead
                               : k + count < w.cols ? kBlockBytes<Format>
                                                    : to_next_strip;
      const float* x = inputs.row(block, first);
      std::size_t at = 0;
      for (; at + kSteps * kStepBytes <= end; at += kSteps * kStepBytes) {
        for (int c = 0; c < C; ++c) __builtin_prefetch(rows[c] + at + next);
        for (int step = 0; step < kSteps; ++step, x += kStepFloats) {
          add_step<Format>(x, rows, at + step * kStepBytes, sum);
        }
      }
      for (; at < end; at += kStepBytes, x += kStepFloats) add_step<Format>(x, rows, at, sum);
      if (left > 0) {
        LastStep<Format, C> last;
        last.copy(rows, end, left);
        add_step<Format>(x, last.rows, 0, sum);
      }
      for (int c = 0; c < C; ++c) rows[c] += kBlockBytes<Format>;
      to_next_strip -= kBlockBytes<Format>;
    }
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C; ++c) sums[r * C + c] = sum[r][c];
    }
  }
}

// ---- many rows of x ----

// sums[r][c] = from[r][c] + x[r] · w[c] over `steps` steps, at least one.
//
// A function of its own, so that the compilers give all registers to it; the promise of a step
// keeps gcc from holding the sums in memory as well. The first rows of x that meet a block of W ask
// for the next, `next` bytes further on, and leave its vectors in a panel [C, kStride], widened,
// aligned, and close together, for those that follow.
enum class Pass { first, again };

template <class Format, int R, int C, Pass pass>
[[gnu::noinline]] void tile(const float* x, const std::byte* const (&w)[C], int steps,
                            std::size_t next, float* panel, const Vec* from, Vec* sums) {
  if (steps < 1) __builtin_unreachable();
  Vec sum[R][C];
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) sum[r][c] = from[r * C + c];
  }
  for (int step = 0; step < steps; ++step) {
    for (int part = 0; part < Format::kParts; ++part, x += kLanes, panel += kLanes) {
      Vec w_k[C];
      for (int c = 0; c < C; ++c) {
        const std::byte* at = w[c] + step * kStepBytes;
        w_k[c] = pass == Pass::again ? simd::load(panel + c * kStride) : Format::weight(at, part);
        simd::pin(w_k[c]);
        if (pass == Pass::first) simd::store(panel + c * kStride, w_k[c]);
        if (pass == Pass::first && part == 0) __builtin_prefetch(at + next);
      }
      add_products<Format>(x, w_k, sum);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) sums[r * C + c] = sum[r][c];
  }
}

// A block of `count` elements: rows of x that meet C rows of W, kRows at a time, then one tile of
// fewer. The sums so far are nothing in the first block.
template <class Format, int kRows, int C>
void tiles(const float* x, int rows, const std::byte* const (&w)[C], int count, std::size_t next,
           bool first_block, Vec* sums) {
  static constexpr Vec kNothing[kRows * C]{};
  const int steps = count / Format::kStep, left = count % Format::kStep;
  const int done = steps * Format::kParts * kLanes;  // floats of a row of vectors
  LastStep<Format, C> last;
  if (left > 0) last.copy(w, static_cast<std::size_t>(steps) * kStepBytes, left);
  alignas(64) float panel[C * kStride];

  const auto run = [&]<Pass pass>(std::integral_constant<Pass, pass>) {
    simd::with_rows<kRows>(rows, [&](auto r) {
      const Vec* from = first_block ? kNothing : sums;
      if (steps > 0) {
        tile<Format, r, C, pass>(x, w, steps, next, panel, from, sums);
        from = sums;
      }
      if (left > 0) {
        tile<Format, r, C, pass>(x + done, last.rows, 1, 0, panel + done, from, sums);
      }
    });
    rows -= kRows, x += kRows * kStride, sums += kRows * C;
  };
  run(std::integral_constant<Pass, Pass::first>{});
  while (rows > 0) run(std::integral_constant<Pass, Pass::again>{});
}

// `rows` rows of x, from `first` on, meet a strip of W, block by block of K:
// sums[t * C + c] = x[first + t] · w[n + c], lane by lane.
template <class Format, int kRows, int C>
void meet(const Inputs& x, int first, int rows, const Weight& w, int n, Vec* sums) {
  for (int k = 0, block = 0; k < w.cols; k += kBlock<Format>, ++block) {
    const std::size_t before = block * kBlockBytes<Format>;
    const std::byte* w_k[C];
    for (int c = 0; c < C; ++c) w_k[c] = row(w, n + c) + before;
    const int count = std::min(kBlock<Format>, w.cols - k);
    // What is read next: the block behind this one, or the first of the next C rows.
    const std::size_t next = k + count < w.cols ? kBlockBytes<Format> : C * row_bytes(w) - before;
    tiles<Format, kRows, C>(x.row(block, first), rows, w_k, count, next, k == 0, sums);
  }
}

// ---- lanes ----

// totals[i] = the lanes of sums[i] added up; both have room for a whole vector more.
inline void add_up(Vec* sums, int count, float* totals) {
  for (int i = count; i % kLanes != 0; ++i) sums[i] = Vec{};
  for (int i = 0; i < count; i += kLanes) simd::store(totals + i, simd::sum_each(sums + i));
}

}  // namespace qwen::fast
