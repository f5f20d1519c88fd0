// y = x W^T in register tiles.
//
//            k →                       A tile keeps kRows x kCols sums in registers and walks along
//        w0 ▓▓░░░░░░                   K. Each step loads one vector of each of its rows of W and
//        w1 ▓▓░░░░░░                   of x and multiplies every pair: kRows + kCols loads for
//     x0 ▓▓  · ·                       kRows * kCols multiply-adds. Both lie along K in memory, so
//     x1 ▓▓  · ·                       nothing is transposed.
//
// One order of arithmetic: a sum belongs to one (row of x, row of W), is one vector accumulator
// from k = 0 to K, and is added up by one tree at the end. Neither the tile it falls into, nor the
// number of rows, nor the number of threads changes a bit of it.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "qwen/caches.h"
#include "qwen/linear.h"
#include "qwen/linear_formats.h"
#include "qwen/parallel.h"

namespace qwen {

void check_linear(const Tensor2& x, const Weight& w);  // linear.cpp

namespace fast {
namespace {

// ---- the tile's shape ----
// 24 sums, 6 vectors of W and one of x are 31 of the 32 registers of AVX-512 and NEON; with 16
// registers (AVX2, SSE) it is 8 + 4 + 1. A multiply-add takes 4 cycles and two start in each, so
// 8 sums keep the units busy.
//
// The rows of W of a tile are a strip, which many rows of x meet before the next: as many as fill
// half of L2 (rows_at_once), 8 tiles or more, since only the first waits for W, and 52 at most,
// since their sums are in L2 as well (80 KB). 8 strips read x from L2 together.
struct Wide {
  static constexpr int kRows = simd::kRegisters == 32 ? 4 : 2;  // of x
  static constexpr int kCols = simd::kRegisters == 32 ? 6 : 4;  // of y: rows of W
  static constexpr int kLeastAtOnce = 8 * kRows, kMostAtOnce = 52 * kRows, kStripsAtOnce = 8;
};

// Few rows of x wait for memory, and a memory that is read at fewer places is faster: half as many
// rows of W, and twice as many of x. The 3 sums of a single row are too few for the units, but it
// waits anyway. The next 8 rows follow after 32 strips, whose W, 0.2 to 0.7 MB in bf16, is in L2 by
// then: enough of them to be worth bringing 8 rows of x into L1.
struct Tall {
  static constexpr int kRows = 2 * Wide::kRows, kCols = Wide::kCols / 2;
  static constexpr int kLeastAtOnce = kRows, kMostAtOnce = kRows, kStripsAtOnce = 32;
};
constexpr int kFewRows = 3 * Tall::kRows;  // of x; more are faster in wide tiles

// ---- blocks of K ----
// K is cut into blocks of 4 KB of vectors a row: six rows of W (25 KB) stay in L1 while the rows of
// x, four at a time (16 KB), pass by from L2. The cache line between two rows keeps equal columns
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

// ---- one tile: sums[r][c] = from[r][c] + x[r] · w[c] over `steps` steps, at least one ----
// A function of its own, so that the compilers give all registers to it; the promise of a step
// keeps gcc from holding the sums in memory as well.
//
// Rows of W are read where they lie by the first rows of x that meet them. These ask for the next
// block of W, `next` bytes further on: the hardware does so by itself, but starts anew on every
// row, and a few rows of x are done with 2 or 4 KB before it has noticed. If more tiles follow,
// they leave the vectors in a panel [C, kStride], widened, aligned, and close together, for those.
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
        const std::byte* at = w[c] + step * kStepBytes;
        w_k[c] =
            reading == Reading::again ? simd::load(panel + c * kStride) : Format::weight(at, part);
        simd::pin(w_k[c]);
        if (reading == Reading::first) simd::store(panel + c * kStride, w_k[c]);
        if (reading != Reading::again && part == 0) __builtin_prefetch(at + next);
      }
      for (int r = 0; r < R; ++r) {
        Vec x_k = simd::load(x + r * kStride);
        simd::pin(x_k);
        for (int c = 0; c < C; ++c) sum[r][c] = Format::multiply_add(x_k, w_k[c], sum[r][c]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) sums[r * C + c] = sum[r][c];
  }
}

// The sums before the first block, of any shape.
constexpr Vec kNothing[Wide::kRows * Wide::kCols]{};

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

// A block of `count` elements: rows of x that meet C rows of W, in whole tiles, then one of fewer
// rows. The sums so far are nothing in the first block.
template <class Format, class Shape, int C>
void tiles(const float* x, int rows, const std::byte* const (&w)[C], int count, std::size_t next,
           bool first_block, Vec* sums) {
  const int steps = count / Format::kStep, left = count % Format::kStep;
  const int done = steps * Format::kParts * kLanes;  // floats of a row of vectors
  LastStep<Format, C> last;
  if (left > 0) last.copy(w, static_cast<std::size_t>(steps) * kStepBytes, left);
  alignas(64) float panel[C * kStride];

  const auto run = [&]<Reading reading>(std::integral_constant<Reading, reading>) {
    simd::with_rows<Shape::kRows>(rows, [&](auto r) {
      const Vec* from = first_block ? kNothing : sums;
      if (steps > 0) {
        tile<Format, r, C, reading>(x, w, steps, next, panel, from, sums);
        from = sums;
      }
      if (left > 0) {
        tile<Format, r, C, reading>(x + done, last.rows, 1, 0, panel + done, from, sums);
      }
    });
    rows -= Shape::kRows, x += Shape::kRows * kStride, sums += Shape::kRows * C;
  };
  if constexpr (Shape::kMostAtOnce == Shape::kRows) {
    run(std::integral_constant<Reading, Reading::once>{});
  } else {
    run(std::integral_constant<Reading, Reading::first>{});
    while (rows > 0) run(std::integral_constant<Reading, Reading::again>{});
  }
}

// ---- the whole product ----

// sums[t * C + c] = x[first + t] · w[n + c], lane by lane, for `rows` rows of x and C rows of W.
template <class Format, class Shape, int C>
void multiply(const Inputs& x, int first, int rows, const Weight& w, int n, Vec* sums) {
  constexpr std::size_t kBlockBytes = kBlock<Format> / Format::kStep * kStepBytes;
  for (int k = 0, block = 0; k < w.cols; k += kBlock<Format>, ++block) {
    const std::size_t before = block * kBlockBytes;
    const std::byte* w_k[C];
    for (int c = 0; c < C; ++c) w_k[c] = row(w, n + c) + before;
    const int count = std::min(kBlock<Format>, w.cols - k);
    // What is read next: the block behind this one, or the first of the next C rows.
    const std::size_t next = k + count < w.cols ? kBlockBytes : C * row_bytes(w) - before;
    tiles<Format, Shape, C>(x.row(block, first), rows, w_k, count, next, k == 0, sums);
  }
}

// totals[i] = the lanes of sums[i] added up; both have room for a whole vector more.
void add_up(Vec* sums, int count, float* totals) {
  for (int i = count; i % kLanes != 0; ++i) sums[i] = Vec{};
  for (int i = 0; i < count; i += kLanes) simd::store(totals + i, simd::sum_each(sums + i));
}

// What strips begin … end - 1 give to `rows` rows of x: strip by strip, and only then into y, whose
// rows lie so far apart that the few columns of a strip would touch a page of memory in each.
template <class Format, class Shape>
void columns(const Inputs& x, int first, int rows, const Weight& w, int begin, int end,
             Tensor2& y) {
  constexpr int C = Shape::kCols;
  // Sums that are worth adding up: of a single row of x those of 16 strips, in whole vectors.
  constexpr int kWorthAdding = 48;
  const int n = begin * C, stop = std::min(end * C, w.rows);
  const int whole = (stop - n) / C, rest = (stop - n) % C;
  Tensor1 totals = uninit(rows * (stop - n) + kLanes);
  Vec sums[kWorthAdding + Shape::kMostAtOnce * C + kLanes];
  int done = 0, waiting = 0;
  const auto add_waiting = [&] {
    add_up(sums, waiting, totals.data() + done);
    done += waiting, waiting = 0;
  };
  for (int i = 0; i < whole; ++i) {
    multiply<Format, Shape, C>(x, first, rows, w, n + i * C, sums + waiting);
    waiting += rows * C;
    if (waiting >= kWorthAdding) add_waiting();
  }
  for (int i = 0; i < rest; ++i) {
    multiply<Format, Shape, 1>(x, first, rows, w, stop - rest + i, sums + waiting);
    waiting += rows;
    if (waiting >= kWorthAdding) add_waiting();
  }
  add_waiting();
  const float* from_whole = totals.data();
  const float* from_rest = totals.data() + rows * whole * C;
  for (int t = 0; t < rows; ++t) {
    float* to = row(y, first + t) + n;
    for (int i = 0; i < whole; ++i, to += C) {
      std::memcpy(to, from_whole + (i * rows + t) * C, C * sizeof(float));
    }
    for (int i = 0; i < rest; ++i) *to++ = from_rest[i * rows + t];
  }
}

// Strips in a piece: so many that they are 256 K multiply-adds or more (from 3 to 60 microseconds
// on), so that starting it costs little, and as a rule at_once or more. A product too small for
// that is shared by as many threads as get 64 K each. If possible there are as many pieces for
// every thread, so that all end together.
int strips_in_piece(double multiply_adds, int at_once, int strips) {
  constexpr double kPiece = 256 * 1024, kWorthAThread = 64 * 1024;
  const int threads = thread_count();
  const double shared = std::min<double>(multiply_adds / kWorthAThread, threads);
  const double usual = std::min<double>(multiply_adds / kPiece, strips / at_once);
  const int pieces = static_cast<int>(std::min<double>(std::max(shared, usual), strips));
  if (pieces <= 1) return std::max(strips, 1);
  const int even = pieces < threads ? pieces : (pieces + threads - 1) / threads * threads;
  return (strips + even - 1) / even;
}

// Bytes; the system is asked once.
std::size_t half_of_l2() {
  static const std::size_t half = second_level_cache(caches()) / 2;
  return half;
}

// Rows of x that meet a strip together, in turns of equal size, whole tiles.
template <class Shape>
int rows_at_once(int T, int K) {
  const std::size_t fit = half_of_l2() / (std::max(K, 1) * sizeof(float));
  const int most =
      static_cast<int>(std::clamp<std::size_t>(fit, Shape::kLeastAtOnce, Shape::kMostAtOnce));
  const int turns = std::max(1, (T + most - 1) / most);
  const int tiles = (T + Shape::kRows - 1) / Shape::kRows;
  return (tiles + turns - 1) / turns * Shape::kRows;
}

template <class Format, class Shape>
std::vector<Tensor2> products_in_tiles(const Tensor2& x, std::span<const Weight* const> ws) {
  constexpr int C = Shape::kCols;
  const int T = dim(x, 0), K = dim(x, 1);
  const Inputs inputs = prepare<Format>(x);
  const auto strips_of = [](const Weight& w) { return (w.rows + C - 1) / C; };
  std::vector<Tensor2> ys;
  int strips = 0;
  for (const Weight* w : ws) {
    ys.push_back(uninit(T, w->rows));
    strips += strips_of(*w);
  }
  const int at_once = rows_at_once<Shape>(T, K);
  const int grain = strips_in_piece(1.0 * T * K * C * strips, Shape::kStripsAtOnce, strips);
  parallel_for(strips, grain, [&](int begin, int end) {
    int first = 0;  // strip of ws[i]
    for (std::size_t i = 0; i < ws.size() && first < end; first += strips_of(*ws[i]), ++i) {
      const int from = std::max(begin - first, 0), to = std::min(end - first, strips_of(*ws[i]));
      if (from >= to) continue;
      for (int t = 0; t < T; t += at_once) {
        columns<Format, Shape>(inputs, t, std::min(at_once, T - t), *ws[i], from, to, ys[i]);
      }
    }
  });
  return ys;
}

template <class Format>
std::vector<Tensor2> products_of(const Tensor2& x, std::span<const Weight* const> ws) {
  if (dim(x, 0) <= kFewRows) return products_in_tiles<Format, Tall>(x, ws);
  return products_in_tiles<Format, Wide>(x, ws);
}

}  // namespace

std::vector<Tensor2> products(const Tensor2& x, std::span<const Weight* const> ws) {
  for (const Weight* w : ws) check_linear(x, *w);
  const auto stored_as = [&](DType dtype) {
    return std::ranges::all_of(ws, [=](const Weight* w) { return w->dtype == dtype; });
  };
  if (stored_as(DType::F32)) return products_of<F32>(x, ws);
  if (stored_as(DType::F16)) return products_of<F16>(x, ws);
  if (stored_as(DType::BF16)) return products_of<BF16>(x, ws);
  // Of several types: one after the other. Of one that has no kernel: as float32.
  std::vector<Tensor2> ys;
  for (const Weight* w : ws) {
    ys.push_back(ws.size() > 1 ? linear(x, *w) : linear(x, convert(*w, DType::F32)));
  }
  return ys;
}

Tensor2 linear(const Tensor2& x, const Weight& w) {
  const Weight* const only = &w;
  return std::move(products(x, {&only, 1})[0]);
}

const char* linear_kernel() {
  return kLinearKernel;
}

}  // namespace fast
}  // namespace qwen
