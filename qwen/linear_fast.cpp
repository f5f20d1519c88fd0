// y = x W^T in register tiles.
//
//            k →                       A tile keeps kRows x kCols sums in registers and walks along
//        w0 ▓▓░░░░░░                   K. Each step loads one vector of each of its rows of W and
//        of w1 ▓▓░░░░░░                   x and multiplies every pair: kRows + kCols loads for
//     x0 ▓▓  · ·                       kRows * kCols multiply-adds. Both lie along K in memory, so
//     x1 ▓▓  · ·                       nothing is transposed, and W is read where it lies.
//
// One order of arithmetic: a sum belongs to one (row of x, row of W), is one vector accumulator
// from k = 0 to K, and is added up by one tree at the end. Neither the tile it falls into, nor the
// number of rows, nor the number of threads changes a bit of it.
#include <algorithm>
#include <memory>

#include "qwen/linear.h"
#include "qwen/parallel.h"
#include "qwen/simd.h"

namespace qwen {

void check_linear(const Tensor2& x, const Weight& w);  // linear.cpp

namespace fast {
namespace {

using simd::kLanes;
using simd::Vec;

// ---- the tile's size ----
// 24 sums, 6 vectors of W and one of x are 31 of the 32 registers of AVX-512 and NEON; with 16
// registers (AVX2, SSE) it is 8 + 4 + 1. A multiply-add takes 4 cycles and two start in each, so
// 8 sums keep the units busy; the 6 of a single row of x are fewer, but it waits for memory anyway.
constexpr int kRows = simd::kRegisters == 32 ? 4 : 2;
constexpr int kCols = simd::kRegisters == 32 ? 6 : 4;

// ---- the formats: how a vector of W meets a vector of x ----
// x is kept as Value; a vector of it, and one of W, hold kStep elements; in W each has kBytes.

struct F32 {
  using Value = float;
  static constexpr int kStep = kLanes;
  static constexpr int kBytes = 4;
  static Vec load(const std::byte* p) { return simd::load(reinterpret_cast<const float*>(p)); }
  static Vec multiply_add(Vec x, Vec w, Vec sum) { return simd::fma(x, w, sum); }
  static Value value(float x) { return x; }
};

struct F16 {
  using Value = float;
  static constexpr int kStep = kLanes;
  static constexpr int kBytes = 2;
  static Vec load(const std::byte* p) {
#if defined(__AVX512F__)
    __m256i bits;
    std::memcpy(&bits, p, sizeof bits);
    return (Vec)_mm512_maskz_cvtph_ps(0xFFFF, bits);  // all lanes; gcc 12 warns of the plain form
#elif defined(__F16C__) && defined(__AVX2__)
    __m128i bits;
    std::memcpy(&bits, p, sizeof bits);
    return (Vec)_mm256_cvtph_ps(bits);
#elif defined(__ARM_NEON)
    float16x4_t bits;
    std::memcpy(&bits, p, sizeof bits);
    return (Vec)vcvt_f32_f16(bits);
#else
    Vec v;
    for (int i = 0; i < kLanes; ++i) {
      std::uint16_t bits;
      std::memcpy(&bits, p + 2 * i, 2);
      v[i] = f16_to_float(bits);
    }
    return v;
#endif
  }
  static Vec multiply_add(Vec x, Vec w, Vec sum) {
    return simd::fma(x, w, sum);
  }
  static Value value(float x) {
    return x;
  }
};

// The bf16 dot product of AMD's processors does twice the work of a multiply-add in the same time.
// Intel's (they also know AVX-512 FP16) takes four times as long: two multiply-adds are faster.
#if defined(__AVX512BF16__) && !defined(__AVX512FP16__)
constexpr bool kDotProduct = true;
#else
constexpr bool kDotProduct = false;
#endif

// A vector holds pairs of bf16: lane l the elements 2l and 2l + 1. Their two products go into one
// float sum, the odd element's first: that is what the instruction does.
struct BF16 {
  using Value = std::uint16_t;
  static constexpr int kStep = 2 * kLanes;
  static constexpr int kBytes = 2;
  static Vec load(const std::byte* p) { return simd::load(reinterpret_cast<const float*>(p)); }
  static Vec multiply_add(Vec x, Vec w, Vec sum) {
#if defined(__AVX512BF16__)
    if constexpr (kDotProduct) {
      return (Vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)w);
    }
#endif
    using Int = simd::VecInt;
    const Vec x_odd = (Vec)((Int)x & (std::int32_t)0xFFFF0000), x_even = (Vec)((Int)x << 16);
    const Vec w_odd = (Vec)((Int)w & (std::int32_t)0xFFFF0000), w_even = (Vec)((Int)w << 16);
    return simd::fma(x_even, w_even, simd::fma(x_odd, w_odd, sum));
  }
  static Value value(float x) {
    return float_to_bf16(x);
  }
};

// ---- x, as the tiles read it ----
// K is cut into blocks, 4 KB of float32 or bf16 a row. All rows of x lie together in a block,
// ending in zeros: so the ten rows of a tile (40 KB) stay in L1, or close, until its neighbours
// have used them again, and only W has a tail to mask. The cache line between two rows keeps equal
// columns from sharing a place in L1.
template <class Format>
struct Panels {
  using Value = typename Format::Value;
  static constexpr int kBlock = 4096 / sizeof(Value);
  static constexpr int kStride = kBlock + 64 / sizeof(Value);

  int rows;
  std::unique_ptr<Value[]> values;  // [blocks][rows][kStride]

  Value* row(int block, int t) const {
    return &values[(static_cast<std::size_t>(block) * rows + t) * kStride];
  }
};

template <class Format>
Panels<Format> prepare(const Tensor2& x) {
  using P = Panels<Format>;
  const int T = dim(x, 0), K = dim(x, 1);
  const int blocks = (K + P::kBlock - 1) / P::kBlock;
  const std::size_t size = static_cast<std::size_t>(blocks) * T * P::kStride;
  P panels{T, std::unique_ptr<typename P::Value[]>(new typename P::Value[size])};
  parallel_for(T, 32, [&](int begin, int end) {
    for (int block = 0; block < blocks; ++block) {
      const int k = block * P::kBlock, count = std::min(P::kBlock, K - k);
      for (int t = begin; t < end; ++t) {
        const float* from = row(x, t) + k;
        typename P::Value* to = panels.row(block, t);
        for (int i = 0; i < count; ++i) to[i] = Format::value(from[i]);
        std::fill(to + count, to + P::kStride, 0);
      }
    }
  });
  return panels;
}

// ---- one tile: sums[r][c] += x[r] · w[c] over `count` elements, a whole number of steps ----
// A function of its own, so that the compilers give all registers to it. The first rows of x to
// meet these rows of W read Ahead: they ask for the next tile's, which lie `next` bytes behind. The
// hardware does so by itself, but starts anew on every row, and a few rows of x are done with 4 KB
// before it has noticed.
template <class Format, int R, int C, bool Ahead>
[[gnu::noinline]] void tile(const typename Format::Value* x, const std::byte* const (&w)[C],
                            int count, std::size_t next, Vec* sums) {
  constexpr int kStride = Panels<Format>::kStride;
  Vec sum[R][C];
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) sum[r][c] = sums[r * C + c];
  }
  for (int k = 0; k < count; k += Format::kStep) {
    Vec w_k[C];
    for (int c = 0; c < C; ++c) {
      const std::byte* p = w[c] + k * Format::kBytes;
      w_k[c] = Format::load(p);
      simd::pin(w_k[c]);
      if constexpr (Ahead) __builtin_prefetch(p + next);
    }
    for (int r = 0; r < R; ++r) {
      const Vec x_k = simd::load(reinterpret_cast<const float*>(x + r * kStride + k));
      for (int c = 0; c < C; ++c) sum[r][c] = Format::multiply_add(x_k, w_k[c], sum[r][c]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) sums[r * C + c] = sum[r][c];
  }
}

// Rows of x that meet C rows of W: whole tiles, of which the first reads ahead, then one of fewer
// rows.
template <class Format, int C>
void tiles(const typename Format::Value* x, int rows, const std::byte* const (&w)[C], int count,
           std::size_t next, Vec* sums) {
  constexpr int kStride = Panels<Format>::kStride;
  auto* whole_tile = tile<Format, kRows, C, true>;
  for (; rows >= kRows; rows -= kRows, x += kRows * kStride, sums += kRows * C) {
    whole_tile(x, w, count, next, sums);
    whole_tile = tile<Format, kRows, C, false>;
  }
  static_assert(kRows <= 4, "a case for every smaller tile");
  switch (rows) {
    case 3:
      return tile<Format, 3, C, true>(x, w, count, next, sums);
    case 2:
      return tile<Format, 2, C, true>(x, w, count, next, sums);
    case 1:
      return tile<Format, 1, C, true>(x, w, count, next, sums);
  }
}

// Rows of x that meet kCols rows of W before the next ones: their blocks (192 KB) and their sums
// (18 KB) stay in L2.
constexpr int kRowsAtOnce = 48;

// out[t * stride + c] = x[first + t] · w[n + c] for `rows` rows of x and C rows of W.
template <class Format, int C>
void multiply(const Panels<Format>& x, int first, int rows, const Weight& w, int n, float* out,
              int stride) {
  Vec sums[kRowsAtOnce * C + kLanes];  // the last few only fill up a vector of totals
  std::fill(sums, sums + rows * C + kLanes, Vec{});
  const std::size_t next = C * row_bytes(w);
  for (int k = 0, block = 0; k < w.cols; k += x.kBlock, ++block) {
    const int count = std::min(x.kBlock, w.cols - k);
    const int whole = count / Format::kStep * Format::kStep, rest = count - whole;
    const auto* x_block = x.row(block, first);
    const std::byte* w_c[C];
    for (int c = 0; c < C; ++c) w_c[c] = row(w, n + c) + k * Format::kBytes;
    tiles<Format, C>(x_block, rows, w_c, whole, next, sums);
    if (rest > 0) {
      // The last elements of a row, followed by zeros: nothing is read past the row's end.
      std::byte padded[C][Format::kStep * Format::kBytes] = {};
      for (int c = 0; c < C; ++c) {
        std::memcpy(padded[c], w_c[c] + whole * Format::kBytes, rest * Format::kBytes);
        w_c[c] = padded[c];
      }
      tiles<Format, C>(x_block + whole, rows, w_c, Format::kStep, 0, sums);
    }
  }
  float totals[kRowsAtOnce * C + kLanes];
  for (int i = 0; i < rows * C; i += kLanes) simd::store(totals + i, simd::sum_each(sums + i));
  for (int t = 0; t < rows; ++t) std::copy_n(totals + t * C, C, out + t * stride);
}

template <class Format>
Tensor2 product(const Tensor2& x, const Weight& w) {
  const int T = dim(x, 0), N = w.rows;
  Tensor2 y = uninit(T, N);
  const Panels<Format> panels = prepare<Format>(x);

  // Rows of W that a thread takes at once: some 5 microseconds of work, so that taking them costs
  // nothing and all threads end together; with many rows of x a few tiles, so that x is read
  // from L2 for several of them.
  constexpr int kWorthAThread = 256 * 1024;  // multiply-adds
  const double row_work = std::max(1.0, static_cast<double>(T) * w.cols);
  const int least = T < kRows ? kCols : 8 * kCols;
  const int grain = std::max(least, static_cast<int>(kWorthAThread / row_work) / kCols * kCols);

  parallel_for(N, grain, [&](int begin, int end) {
    // A piece of y of its own, copied row by row: columns of y itself lie a power of two apart as
    // often as not, and would all fall on the same few lines of L1.
    Tensor2 piece = uninit(kRowsAtOnce, end - begin);
    for (int t = 0; t < T; t += kRowsAtOnce) {
      const int rows = std::min(kRowsAtOnce, T - t), stride = end - begin;
      int n = begin;
      for (; n + kCols <= end; n += kCols) {
        multiply<Format, kCols>(panels, t, rows, w, n, piece.data() + (n - begin), stride);
      }
      for (; n < end; ++n) {
        multiply<Format, 1>(panels, t, rows, w, n, piece.data() + (n - begin), stride);
      }
      for (int i = 0; i < rows; ++i) std::copy_n(row(piece, i), stride, row(y, t + i) + begin);
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
  return kDotProduct ? "AVX-512, bf16 dot product" : simd::kName;
}

}  // namespace fast
}  // namespace qwen
