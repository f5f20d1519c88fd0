// Chapter 4. Most of a model's work is y = x W^T. What does it compute, and how fast can that be?
//
// New modules: machine and parallel (threads), linear (one product for every storage format), mlp
// (the feed-forward half of a layer), ladder (the way from three loops to linear's register tile),
// blas_kernel (so that OpenBLAS is compared at its best).
// The program runs one MLP of Qwen3.5-0.8B's shape, plain and fast, and compares. With --ladder it
// measures every step of that way, OpenBLAS beside it, and what the number of rows changes.
#include <cblas.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>

#include "qwen/blas_kernel.h"
#include "qwen/ladder.h"
#include "qwen/linear.h"
#include "qwen/machine.h"
#include "qwen/mlp.h"
#include "qwen/parallel.h"
#include "qwen/program.h"

using namespace qwen;

namespace {

constexpr int kHidden = 1024, kIntermediate = 3584;  // Qwen3.5-0.8B

// Numbers of variance 1 / columns, the same on every machine.
Tensor2 random_rows(int rows, int columns, unsigned seed) {
  std::mt19937 random(seed);
  const float size = std::sqrt(3.0f / static_cast<float>(columns));
  Tensor2 x = uninit(rows, columns);
  for (float& value : x) value = size * (static_cast<float>(random()) * 0x1p-31f - 1);
  return x;
}

// A matrix in memory instead of a file.
Weight as_weight(Tensor2 values) {
  const auto owner = std::make_shared<const Tensor2>(std::move(values));
  const auto* data = reinterpret_cast<const std::byte*>(owner->data());
  return {DType::F32, dim(*owner, 0), dim(*owner, 1), data, nullptr, owner, "w"};
}

struct Difference {
  double rms, largest;  // of a - b, relative to the root mean square of b
};
Difference difference(const Tensor2& a, const Tensor2& b) {
  double squares = 0, largest = 0, reference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = a.data()[i] - b.data()[i];
    squares += d * d;
    largest = std::max(largest, std::abs(d));
    reference += b.data()[i] * b.data()[i];
  }
  return {std::sqrt(squares / reference), largest / std::sqrt(reference / b.size())};
}

const char* bits(const Tensor2& a, const float* b) {
  return std::memcmp(a.data(), b, a.size() * sizeof(float)) == 0 ? "the same" : "OTHER";
}

// ---- one MLP, plain and fast ----

void show_mlp() {
  Ops plain_ops, fast_ops;
  plain_ops.products = one_by_one(plain::linear);
  plain_ops.swiglu = plain::swiglu;
  fast_ops.products = fast::products;
  fast_ops.swiglu = fast::swiglu;

  const Mlp mlp{as_weight(random_rows(kIntermediate, kHidden, 1)),
                as_weight(random_rows(kIntermediate, kHidden, 2)),
                as_weight(random_rows(kHidden, kIntermediate, 3))};
  const Tensor2 x = random_rows(33, kHidden, 4) * 32.0f;  // variance 1, as behind a norm
  const Tensor2 y = mlp_forward(plain_ops, mlp, x), y_fast = mlp_forward(fast_ops, mlp, x);

  std::printf("x [%d, %d] -> gate, up [%d, %d] -> y [%d, %d]\n", dim(x, 0), dim(x, 1), dim(x, 0),
              mlp.gate_proj.rows, dim(y, 0), dim(y, 1));
  std::printf("plain: y[0] = %7.4f %7.4f %7.4f …\n", y(0, 0), y(0, 1), y(0, 2));
  std::printf("fast:  y[0] = %7.4f %7.4f %7.4f …\n", y_fast(0, 0), y_fast(0, 1), y_fast(0, 2));
  const double apart = difference(y_fast, y).largest;
  std::printf("all elements agree within 1e-4: %s\n", apart < 1e-4 ? "yes" : "NO");
  std::printf("~ compiled for [%s], largest difference %.1e\n\n", fast::linear_kernel(), apart);

  std::printf("stored     bytes   error of y: rms  largest   row 20 alone   with 2, 3 threads\n");
  Tensor2 x_20 = uninit(1, kHidden);
  std::copy_n(row(x, 20), kHidden, x_20.data());
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    const Mlp stored{convert(mlp.gate_proj, dtype), convert(mlp.up_proj, dtype),
                     convert(mlp.down_proj, dtype)};
    const auto forward = [&](const Tensor2& rows, int threads) {
      set_thread_count(threads);
      return mlp_forward(fast_ops, stored, rows);
    };
    const Tensor2 all = forward(x, 1);
    const Difference error = difference(all, y_fast);
    std::printf("%-6s %9zu %16.2f %% %6.1f %% %14s %11s, %s\n", format(dtype).name,
                3 * bytes(stored.gate_proj), 100 * error.rms, 100 * error.largest,
                bits(forward(x_20, 1), row(all, 20)), bits(forward(x, 2), all.data()),
                bits(forward(x, 3), all.data()));
  }
}

// ---- the ladder ----

Tensor2 openblas(const Tensor2& x, const Tensor2& w) {
  const int T = dim(x, 0), K = dim(x, 1), N = dim(w, 0);
  Tensor2 y = uninit(T, N);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, T, N, K, 1, x.data(), K, w.data(), K, 0,
              y.data(), N);
  return y;
}

void show_ladder() {
  const Tensor2 x = random_rows(48, kIntermediate, 1), w = random_rows(kHidden, kIntermediate, 2);
  const Weight f32 = as_weight(w), bf16 = convert(f32, DType::BF16);
  const double work = static_cast<double>(x.size()) * dim(w, 0);  // multiply-adds
  const Tensor2 y = ladder::three_loops(x, w);
  const auto step = [&](const std::string& name, int threads, const std::function<Tensor2()>& run) {
    set_thread_count(threads);
    if (difference(run(), y).rms > 0.01) throw std::runtime_error(name + " is wrong");
    // The clock of a CPU changes from second to second: each step has a peak measured beside it.
    const double peak = threads * ladder::peak_multiply_adds();
    const double rate = work / ladder::shortest(run);
    std::printf("~ %-44s %8.1f %9.1f %7.1f %%\n", name.c_str(), 2e-9 * rate, 2e-9 * peak,
                100 * rate / peak);
  };
  const int team = default_threads().count;
  openblas_set_num_threads(1);
  std::printf("x [48, %d], W [%d, %d], float32\n", kIntermediate, kHidden, kIntermediate);
  std::printf("~ [%s], multiply-adds count as two\n", cpu_name().c_str());
  std::printf("  step                                          GFLOP/s      peak   of peak\n");
  step("1 three loops", 1, [&] { return ladder::three_loops(x, w); });
  step("2 the same down the columns of W", 1, [&] { return ladder::down_the_columns(x, w); });
  step("3 one vector along K", 1, [&] { return ladder::one_vector(x, w); });
  step("4 several rows of W at once", 1, [&] { return ladder::rows_of_w(x, w); });
  step("5 a tile: several rows of x as well", 1, [&] { return ladder::tiles(x, w); });
  step("6 x in blocks: fast::linear", 1, [&] { return fast::linear(x, f32); });
  step("7 the same on all threads", team, [&] { return fast::linear(x, f32); });
  step("OpenBLAS, [" + std::string(openblas_get_corename()) + "], one thread", 1,
       [&] { return openblas(x, w); });
  step("fast::linear with W in bf16, one thread", 1, [&] { return fast::linear(x, bf16); });
}

// How fast W is read by a few rows of x that meet adjacent rows of it, or some that are far apart:
// what fast::linear has found out about this machine.
void show_reading() {
  set_thread_count(default_threads().count);
  std::printf("\nGB/s of W, by which rows of it are read together\n  rows of x  type");
  for (const char* name : fast::kReadingNames) std::printf("%14s", name);
  std::printf("\n");
  for (std::size_t i = 0; i < fast::reading_speeds(DType::F32).samples.size(); ++i) {
    for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
      const auto& sample = fast::reading_speeds(dtype).samples[i];
      std::printf("~ %9d  %-4s", sample.rows, format(dtype).name);
      for (const double speed : sample.speed) std::printf("%14.1f", 1e-9 * speed);
      std::printf("\n");
    }
  }
}

// A matrix larger than most caches: with one row of x, all the work is waiting for it.
void show_rows() {
  const Weight f32 = as_weight(random_rows(64 * kHidden, kHidden, 1));
  const Weight bf16 = convert(f32, DType::BF16);
  set_thread_count(default_threads().count);
  std::printf("\nW [%d, %d], all threads\n", f32.rows, f32.cols);
  std::printf("  rows of x   f32: ms   GFLOP/s   GB/s of W    bf16: ms   GFLOP/s   GB/s of W\n");
  for (const int rows : {1, 2, 4, 8, 16, 32, 64}) {
    const Tensor2 x = random_rows(rows, kHidden, 2);
    std::printf("~ %9d", rows);
    for (const Weight& w : {f32, bf16}) {
      const double s = ladder::shortest([&] { return fast::linear(x, w); });
      std::printf(" %9.1f %9.1f %11.1f ", 1e3 * s, 2e-9 * x.size() * w.rows / s,
                  1e-9 * bytes(w) / s);
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Chapter 4: the matrix product and the feed-forward half of a layer."};
  bool ladder = false;
  app.add_flag("--ladder", ladder, "measure every step from three loops to the fast product");
  return run_program(app, argc, argv, [&] {
    if (!ladder) return show_mlp();
    choose_blas_kernel(argv);
    show_ladder();
    show_reading();
    show_rows();
  });
}
