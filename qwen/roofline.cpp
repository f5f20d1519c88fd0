#include "qwen/roofline.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "qwen/parallel.h"
#include "qwen/simd.h"
#include "qwen/tensor.h"

namespace qwen {
namespace {

using simd::kLanes;
using simd::Vec;

// The compiler must have this value in a register here, and know nothing about it: a result that
// nobody reads would let it leave the work out.
inline void pin(Vec& v) {
#if defined(__AVX512F__)
  asm volatile("" : "+v"(v));
#elif defined(__SSE__)
  asm volatile("" : "+x"(v));
#elif defined(__ARM_NEON)
  asm volatile("" : "+w"(v));
#else
  asm volatile("" : "+m"(v));
#endif
}

// ---- reading ----

// Adds up Rows rows of `length` floats that lie one after the other, side by side. `ahead` is how
// many floats before its use a cache line is asked for; 0 leaves that to the hardware.
template <int Rows, int Unrolled>
Vec add_rows(const float* p, int length, int ahead) {
  Vec sum[Rows * Unrolled]{};
  for (int i = 0; i < length; i += Unrolled * kLanes) {
    for (int u = 0; u < Unrolled; ++u) {
      for (int r = 0; r < Rows; ++r) {
        const float* at = p + r * length + i + u * kLanes;
        sum[r * Unrolled + u] += simd::load(at);
        if (ahead > 0) __builtin_prefetch(at + ahead);
      }
    }
  }
  return std::accumulate(std::begin(sum), std::end(sum), Vec{});
}

// What a thread takes at once, and the row of a matrix as it is found in models.
constexpr int kPiece = 1 << 18;  // floats, 1 MiB
constexpr int kRow = 1 << 10;

template <int Rows>
Vec add_matrix(const float* p, int ahead) {
  Vec sum{};
  for (int i = 0; i < kPiece; i += Rows * kRow) sum += add_rows<Rows, 1>(p + i, kRow, ahead);
  return sum;
}

Vec add_piece(const float* p, int order) {
  switch (order) {
    case 0:
      return add_rows<1, 8>(p, kPiece, 0);
    case 1:
      return add_rows<1, 8>(p, kPiece, kRow);
    case 2:
      return add_rows<4, 2>(p, kPiece / 4, 0);
    default:
      return add_matrix<8>(p, 8 * kRow);
  }
}

// ---- computing ----

// Sums that do not wait for each other: a core with two multiply-adders of 4 cycles each needs 8,
// one with four needs 16.
#if defined(__AVX512F__) || defined(__ARM_NEON)
constexpr int kChains = 24;
#else
constexpr int kChains = 12;
#endif
constexpr int kSteps = 4000;
constexpr int kPiecesPerThread = 8;

struct Fma {
  static Vec step(Vec x, Vec sum) { return simd::fma(x, x, sum); }
};

#if defined(__AVX512BF16__)
struct Bf16Dot {
  static Vec step(Vec x, Vec sum) {
    return (Vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)x);
  }
};
#endif

// A step of every chain, kSteps times. The chains are written out one by one, and each is pinned:
// in a loop over them the compilers keep them in memory.
template <class Op, std::size_t... Chain>
[[gnu::noinline]] void run_chains(std::index_sequence<Chain...>) {
  Vec x = simd::broadcast(0.5f), sum[kChains]{};
  pin(x);
  for (int i = 0; i < kSteps; ++i) {
    ((sum[Chain] = Op::step(x, sum[Chain]), pin(sum[Chain])), ...);
  }
}

template <class Op>
void burst() {
  parallel_for(kPiecesPerThread * thread_count(), 1,
               [](int, int) { run_chains<Op>(std::make_index_sequence<kChains>()); });
}

double steps_done() {
  return static_cast<double>(kPiecesPerThread) * thread_count() * kSteps * kChains;
}

}  // namespace

ReadBlock::ReadBlock(std::size_t bytes) : size_(bytes / sizeof(float) / kPiece * kPiece) {
  data_ = std::reinterpret_pointer_cast<float>(lasting_block(size_ * sizeof(float)));
  parallel_for(static_cast<int>(size_ / kPiece), 1, [&](int begin, int end) {
    for (int i = begin; i < end; ++i) {
      std::fill_n(data_.get() + static_cast<std::size_t>(i) * kPiece, kPiece, 1.0f);
    }
  });
}

std::size_t read_block_bytes(std::size_t largest_cache, std::size_t free_memory) {
  constexpr std::size_t kLeast = std::size_t{1} << 30;
  return std::min(std::max(4 * largest_cache, kLeast), free_memory / 4);
}

double read_all(const ReadBlock& block, int order) {
  parallel_for(static_cast<int>(block.size() / kPiece), 1, [&](int begin, int end) {
    Vec sum{};
    for (int i = begin; i < end; ++i) {
      sum += add_piece(block.data() + static_cast<std::size_t>(i) * kPiece, order);
    }
    pin(sum);
  });
  return static_cast<double>(block.size() * sizeof(float));
}

double multiply_adds() {
  burst<Fma>();
  return steps_done() * 2 * kLanes;
}

double bf16_dot_products() {
#if defined(__AVX512BF16__)
  burst<Bf16Dot>();
  return steps_done() * 4 * kLanes;
#else
  return 0;
#endif
}

}  // namespace qwen
