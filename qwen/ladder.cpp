#include "qwen/ladder.h"

#include <algorithm>
#include <chrono>

#include "qwen/simd.h"

namespace qwen::ladder {

using simd::kLanes;
using simd::Vec;

Tensor2 three_loops(const Tensor2& x, const Tensor2& w) {
  const int T = dim(x, 0), K = dim(x, 1), N = dim(w, 0);
  Tensor2 y = uninit(T, N);
  for (int n = 0; n < N; ++n) {
    for (int t = 0; t < T; ++t) {
      const float *x_t = row(x, t), *w_n = row(w, n);
      float sum = 0;
      for (int k = 0; k < K; ++k) sum += x_t[k] * w_n[k];
      y(t, n) = sum;
    }
  }
  return y;
}

Tensor2 down_the_columns(const Tensor2& x, const Tensor2& w) {
  const int T = dim(x, 0), K = dim(x, 1), N = dim(w, 0);
  Tensor2 y = zeros(T, N);
  for (int t = 0; t < T; ++t) {
    float* y_t = row(y, t);
    for (int k = 0; k < K; ++k) {
      const float x_tk = x(t, k);
      const float* column = w.data() + k;
      for (int n = 0; n < N; ++n) y_t[n] += x_tk * column[static_cast<std::size_t>(n) * K];
    }
  }
  return y;
}

Tensor2 one_vector(const Tensor2& x, const Tensor2& w) {
  const int T = dim(x, 0), K = dim(x, 1), N = dim(w, 0);
  Tensor2 y = uninit(T, N);
  for (int n = 0; n < N; ++n) {
    for (int t = 0; t < T; ++t) {
      const float *x_t = row(x, t), *w_n = row(w, n);
      Vec sum{};
      for (int k = 0; k < K; k += kLanes) {
        sum = simd::fma(simd::load(x_t + k), simd::load(w_n + k), sum);
      }
      y(t, n) = simd::sum(sum);
    }
  }
  return y;
}

// y[t + r, n + c] for R rows of x and C rows of W.
template <int R, int C>
[[gnu::noinline]] void tile(const Tensor2& x, int t, const Tensor2& w, int n, Tensor2& y) {
  const int K = dim(x, 1);
  Vec sum[R][C] = {};
  for (int k = 0; k < K; k += kLanes) {
    Vec w_k[C];
    for (int c = 0; c < C; ++c) {
      w_k[c] = simd::load(row(w, n + c) + k);
      simd::pin(w_k[c]);
    }
    for (int r = 0; r < R; ++r) {
      const Vec x_k = simd::load(row(x, t + r) + k);
      for (int c = 0; c < C; ++c) sum[r][c] = simd::fma(x_k, w_k[c], sum[r][c]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) y(t + r, n + c) = simd::sum(sum[r][c]);
  }
}

// All rows of x with C rows of W: whole tiles, and what is left over row by row.
template <int R, int C>
void column_of_tiles(const Tensor2& x, const Tensor2& w, int n, Tensor2& y) {
  const int T = dim(x, 0);
  int t = 0;
  for (; t + R <= T; t += R) tile<R, C>(x, t, w, n, y);
  for (; t < T; ++t) tile<1, C>(x, t, w, n, y);
}

template <int R, int C>
Tensor2 in_tiles(const Tensor2& x, const Tensor2& w) {
  const int N = dim(w, 0);
  Tensor2 y = uninit(dim(x, 0), N);
  int n = 0;
  for (; n + C <= N; n += C) column_of_tiles<R, C>(x, w, n, y);
  for (; n < N; ++n) column_of_tiles<R, 1>(x, w, n, y);
  return y;
}

// The shape for many rows that linear_fast.cpp has, and how many sums the probe below keeps.
constexpr int kRows = simd::kRegisters == 32 ? 4 : 2;
constexpr int kCols = simd::kRegisters == 32 ? 6 : 4;
constexpr int kSums = simd::kRegisters == 32 ? 16 : 12;

Tensor2 rows_of_w(const Tensor2& x, const Tensor2& w) {
  return in_tiles<1, kCols>(x, w);
}
Tensor2 tiles(const Tensor2& x, const Tensor2& w) {
  return in_tiles<kRows, kCols>(x, w);
}

// Multiply-adds into sums that do not wait for each other and never leave their registers.
[[gnu::noinline]] void multiply_add(int steps, Vec* sums) {
  Vec sum[kSums], factor = simd::broadcast(0.5f);
  std::copy_n(sums, kSums, sum);
  for (int step = 0; step < steps; ++step) {
    simd::pin(factor);  // so that the compiler computes nothing ahead of the loop
    for (Vec& s : sum) s = simd::fma(factor, factor, s);
  }
  std::copy_n(sum, kSums, sums);
}

double shortest(const std::function<void()>& work) {
  double best = 1e9, total = 0;
  for (int run = 0; run < 3 || total < 0.25; ++run) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::min(best, seconds.count());
    total += seconds.count();
  }
  return best;
}

double peak_multiply_adds() {
  constexpr int kSteps = 20000;
  Vec sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = simd::broadcast(static_cast<float>(i));
  const double seconds = shortest([&] { multiply_add(kSteps, sums); });
  for (const Vec& s : sums) [[maybe_unused]] volatile float used = simd::sum(s);
  return kSums * kLanes * static_cast<double>(kSteps) / seconds;
}

}  // namespace qwen::ladder
