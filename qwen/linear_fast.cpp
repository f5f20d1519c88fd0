// y = x W^T in register tiles.
//
//            k →                       A tile keeps kRows x kCols sums in registers and walks along
//        w0 ▓▓░░░░░░                   K. Each step loads one vector of each of its rows of W and
//        of w1 ▓▓░░░░░░                   x and multiplies every pair: kRows + kCols loads for
//     x0 ▓▓  · ·                       kRows * kCols multiply-adds. Both lie along K in memory, so
//     x1 ▓▓  · ·                       nothing is transposed.
//
// One order of arithmetic: a sum belongs to one (row of x, row of W), is one vector accumulator
// from k = 0 to K, and is added up by one tree at the end. Neither the tile it falls into, nor the
// number of rows, nor the number of threads changes a bit of it.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "qwen/linear.h"
#include "qwen/linear_formats.h"
#include "qwen/parallel.h"

namespace qwen {

void check_linear(const Tensor2& x, const Weight& w);  // linear.cpp

namespace fast {
namespace {

// ---- the tile's size ----
// 24 sums, 6 vectors of W and one of x are 31 of the 32 registers of AVX-512 and NEON; with 16
// registers (AVX2, SSE) it is 8 + 4 + 1. A multiply-add takes 4 cycles and two start in each, so
// 8 sums keep the units busy; the 6 of a single row of x are fewer, but it waits for memory anyway.
constexpr int kRows = simd::kRegisters == 32 ? 4 : 2;
constexpr int kCols = simd::kRegisters == 32 ? 6 : 4;

// ---- blocks of K ----
// K is cut into blocks of 4 KB of vectors a row. Ten rows of a tile (40 KB) stay in L1, or close,
// until its neighbours have used them again. The cache line between two rows keeps equal columns
// from sharing a place in L1.
constexpr int kBlockVectors = 4096 / sizeof(Vec);
constexpr int kStride = kBlockVectors * kLanes + 16;  // floats

template <class Format>
constexpr int kBlock = kBlockVectors / Format::kParts* Format::kStep;  // elements

// x as vectors: block by block, all rows together in each; the last step of a row is filled up
// with zeros.
struct Inputs {
  int rows;
  Tensor2 vectors;  // [blocks * rows, kStride]
  const float* row(int block, int t) const { return qwen::row(vectors, block * rows + t); }
};

template <class Format>
Inputs prepare(const Tensor2& x) {
  const int T = dim(x, 0), K = dim(x, 1), blocks = (K + kBlock<Format> - 1) / kBlock<Format>;
  Inputs inputs{T, uninit(blocks * T, kStride)};
  parallel_for(T, 32, [&](int begin, int end) {
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

// ---- one tile: sums[r][c] = from[r][c] + x[r] · w[c] over `steps` steps, at least one ----
// A function of its own, so that the compilers give all registers to it; the promise of a step
// keeps gcc from holding the sums in memory as well.
//
// Rows of W are read where they lie by the first rows of x that meet them. These ask for the next
// rows of W, `next` bytes behind: the hardware does so by itself, but starts anew on every row, and
// a few rows of x are done with 4 KB before it has noticed. If more rows of x follow, they leave
// the vectors in a panel [C, kStride], widened, aligned, and close together, for those.
enum class Reading { once, first, again };

template <class Format, int R, int C, Reading reading>
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
        const std::byte* at = w[c] + step * Format::kBytes;
        w_k[c] =
            reading == Reading::again ? simd::load(panel + c * kStride) : Format::weight(at, part);
        simd::pin(w_k[c]);
        if (reading == Reading::first) simd::store(panel + c * kStride, w_k[c]);
        if (reading != Reading::again && part == 0) __builtin_prefetch(at + next);
      }
      for (int r = 0; r < R; ++r) {
        const Vec x_k = simd::load(x + r * kStride);
        for (int c = 0; c < C; ++c) sum[r][c] = Format::multiply_add(x_k, w_k[c], sum[r][c]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) sums[r * C + c] = sum[r][c];
  }
}

// The sums before the first block.
constexpr Vec kNothing[kRows * kCols]{};

// f(integral_constant R) with R = rows, or kRows where there are more.
template <int R = kRows, class F>
void with_rows(int rows, F f) {
  if (rows >= R) {
    f(std::integral_constant<int, R>{});
  } else if constexpr (R > 1) {
    with_rows<R - 1>(rows, f);
  }
}

// The last, incomplete step of C rows of W, of which `left` elements stand at `from`, filled up
// with zeros: nothing is read past the rows' end.
template <class Format, int C>
struct LastStep {
  std::byte bytes[C][Format::kBytes]{};
  const std::byte* rows[C];
  LastStep(const std::byte* const (&w)[C], std::size_t from, int left) {
    constexpr int kElement = Format::kBytes / Format::kStep;
    for (int c = 0; c < C; ++c) {
      rows[c] = bytes[c];
      std::memcpy(bytes[c], w[c] + from, static_cast<std::size_t>(left) * kElement);
    }
  }
};

// A block of `count` elements: rows of x that meet C rows of W, in whole tiles, then one of fewer
// rows. The sums so far are nothing in the first block.
template <class Format, int C>
void tiles(const float* x, int rows, const std::byte* const (&w)[C], int count, std::size_t next,
           bool first_block, Vec* sums) {
  const int steps = count / Format::kStep, left = count % Format::kStep;
  const int done = steps * Format::kParts * kLanes;  // floats of a row of vectors
  const LastStep<Format, C> last(w, static_cast<std::size_t>(steps) * Format::kBytes, left);
  alignas(64) float panel[C * kStride];

  const auto run = [&]<Reading reading>(std::integral_constant<Reading, reading>) {
    with_rows(rows, [&](auto r) {
      const Vec* from = first_block ? kNothing : sums;
      if (steps > 0) {
        tile<Format, r, C, reading>(x, w, steps, next, panel, from, sums);
        from = sums;
      }
      if (left > 0) {
        tile<Format, r, C, reading>(x + done, last.rows, 1, 0, panel + done, from, sums);
      }
    });
    rows -= kRows, x += kRows * kStride, sums += kRows * C;
  };
  if (rows <= kRows) return run(std::integral_constant<Reading, Reading::once>{});
  run(std::integral_constant<Reading, Reading::first>{});
  while (rows > 0) run(std::integral_constant<Reading, Reading::again>{});
}

// ---- the whole product ----

// At most so many rows of x meet C rows of W before the next ones: their blocks (288 KB) and their
// sums (27 KB) stay in L2, and the first tile of each, which waits for W, is one of 18.
constexpr int kRowsAtOnce = 18 * kRows;

// totals[t * C + c] = x[first + t] · w[n + c] for `rows` rows of x and C rows of W.
template <class Format, int C>
void multiply(const Inputs& x, int first, int rows, const Weight& w, int n, float* totals) {
  Vec sums[kRowsAtOnce * C + kLanes];
  std::fill_n(sums + rows * C, kLanes, Vec{});  // these only fill up a vector of totals
  for (int k = 0, block = 0; k < w.cols; k += kBlock<Format>, ++block) {
    const std::size_t before = stored_bytes(w.dtype, static_cast<std::size_t>(k));
    const std::byte* w_k[C];
    for (int c = 0; c < C; ++c) w_k[c] = row(w, n + c) + before;
    tiles<Format, C>(x.row(block, first), rows, w_k, std::min(kBlock<Format>, w.cols - k),
                     C * row_bytes(w), k == 0, sums);
  }
  for (int i = 0; i < rows * C; i += kLanes) simd::store(totals + i, simd::sum_each(sums + i));
}

// Columns begin … end - 1 of y, for `rows` rows of x: tile by tile, and only then into y, whose
// rows lie so far apart that six columns of it would fill a page of memory each.
template <class Format>
void columns(const Inputs& x, int first, int rows, const Weight& w, int begin, int end,
             Tensor2& y) {
  const int whole = (end - begin) / kCols, rest = (end - begin) % kCols;
  Tensor2 totals = uninit(whole + rest, rows * kCols + kLanes);
  for (int i = 0; i < whole; ++i) {
    multiply<Format, kCols>(x, first, rows, w, begin + i * kCols, row(totals, i));
  }
  for (int i = 0; i < rest; ++i) {
    multiply<Format, 1>(x, first, rows, w, end - rest + i, row(totals, whole + i));
  }
  for (int t = 0; t < rows; ++t) {
    float* to = row(y, first + t) + begin;
    for (int i = 0; i < whole; ++i, to += kCols) {
      std::memcpy(to, row(totals, i) + t * kCols, kCols * sizeof(float));
    }
    for (int i = 0; i < rest; ++i) *to++ = totals(whole + i, t);
  }
}

template <class Format>
Tensor2 product(const Tensor2& x, const Weight& w) {
  const int T = dim(x, 0), N = w.rows;
  Tensor2 y = uninit(T, N);
  const Inputs inputs = prepare<Format>(x);

  // Rows of x in turns of equal size, and rows of W that a thread takes at once: some 5
  // microseconds of work, so that taking them costs nothing and all threads end together; with many
  // rows of x eight tiles, so that those are read from L2 for several of them.
  const int turns = std::max(1, (T + kRowsAtOnce - 1) / kRowsAtOnce);
  const int at_once = (T + turns * kRows - 1) / (turns * kRows) * kRows;
  constexpr int kWorthAThread = 256 * 1024;  // multiply-adds
  const double row_work = std::max(1.0, static_cast<double>(T) * w.cols);
  const int least = T < kRows ? kCols : 8 * kCols;
  const int grain = std::max(least, static_cast<int>(kWorthAThread / row_work) / kCols * kCols);
  parallel_for(N, grain, [&](int begin, int end) {
    for (int t = 0; t < T; t += at_once) {
      columns<Format>(inputs, t, std::min(at_once, T - t), w, begin, end, y);
    }
  });
  return y;
}

}  // namespace

Tensor2 linear(const Tensor2& x, const Weight& w) {
  check_linear(x, w);
  switch (w.dtype) {
    case DType::F32:
      return product<F32>(x, w);
    case DType::F16:
      return product<F16>(x, w);
    case DType::BF16:
      return product<BF16>(x, w);
    default:
      return product<F32>(x, convert(w, DType::F32));
  }
}

const char* linear_kernel() {
  return kLinearKernel;
}

}  // namespace fast
}  // namespace qwen
