// Chapter 3. What does a norm take away?
//
// New modules: norm (RMSNorm, plain and gated) and two headers that the rest of the book stands on:
// ops.h, the table of operators, and simd.h, the one order of every fast sum. The program shows
// that a norm leaves a row's direction and removes its size, why a scale is stored as 1 + w, where
// the gate comes in, and that two tables, one of plain and one of fast functions, agree.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>

#include "qwen/dtype.h"
#include "qwen/norm.h"
#include "qwen/ops.h"
#include "qwen/program.h"
#include "qwen/simd.h"

using namespace qwen;

namespace {

constexpr float kEps = 1e-6f;  // rms_norm_eps of every Qwen3.5

double rms(const float* x, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return std::sqrt(sum / n);
}

Tensor2 random_rows(int rows, int columns, unsigned seed) {
  std::mt19937 random(seed);
  Tensor2 x = uninit(rows, columns);
  for (float& value : x) value = static_cast<float>(random()) * 0x1p-31f - 1;
  return x;
}

// One direction in five sizes, the last of them 0.
void show_sizes(const Ops& ops) {
  const Tensor1 scale{1, 1, 1, 1};
  std::printf("%27s %10s %37s\n", "x", "rms", "norm(x)");
  for (const float size : {1e3f, 1.0f, 1e-2f, 1e-3f, 0.0f}) {
    const Tensor2 x{{3 * size, 4 * size, 1 * size, 0}};
    const Tensor2 y = ops.rms_norm(x, scale, kEps);
    std::printf("%8g %8g %8g %2g %9.3g %12.4f %8.4f %8.4f %6.4f\n", x(0, 0), x(0, 1), x(0, 2),
                x(0, 3), rms(row(x, 0), 4), y(0, 0), y(0, 1), y(0, 2), y(0, 3));
  }
  std::printf("The size is gone; only near sqrt(eps) = 0.001 does eps begin to count.\n");
}

// The same scale stored as w and as 1 + w, both in bf16.
void show_centre() {
  const auto as_bf16 = [](float x) { return bf16_to_float(float_to_bf16(x)); };
  std::printf("\n%8s %22s %22s\n", "w", "1 + bf16(w), float32", "bf16(1 + w)");
  for (const float w : {-0.0051f, 0.0012f, 0.0041f, 0.0123f}) {
    std::printf("%8.4f %22.6f %22.6f\n", w, 1 + as_bf16(w), as_bf16(1 + w));
  }
  std::printf("Around 0 bf16 has digits to spare, around 1 its neighbours are 0.0078 apart.\n");
}

// A gate of 0 closes a channel, a large one lets it through; the mean square knows of neither.
void show_gate(const Ops& ops) {
  const Tensor2 x{{3, 4, 1, 0.5f}};
  const Tensor1 weight{1, 1, 1, 1};
  std::printf("\n%10s %31s\n", "z", "norm(x) * silu(z)");
  for (const float first : {-8.0f, 0.0f, 1.0f, 8.0f}) {
    const Tensor2 z{{first, 1, 1, 1}};
    const Tensor2 y = ops.gated_rms_norm(x, z, weight, kEps);
    std::printf("%3g 1 1 1 %13.4f %8.4f %8.4f %8.4f\n", first, y(0, 0), y(0, 1), y(0, 2), y(0, 3));
  }
  std::printf("Only the first channel moves: the gate comes after the norm.\n");
}

// Both tables on rows of the 0.8B's hidden size, and one row on its own.
void compare(const Ops& plain_ops, const Ops& fast_ops) {
  const Tensor2 x = random_rows(64, 1024, 1);
  const Tensor1 scale(Tensor1::shape_type{1024}, 1.25f);
  const Tensor2 y = plain_ops.rms_norm(x, scale, kEps), y_fast = fast_ops.rms_norm(x, scale, kEps);
  double largest = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    largest = std::max(largest, std::abs(double{y.data()[i]} - y_fast.data()[i]));
  }
  Tensor2 alone = uninit(1, 1024);
  std::copy_n(row(x, 20), 1024, alone.data());
  alone = fast_ops.rms_norm(alone, scale, kEps);
  const bool same = std::memcmp(alone.data(), row(y_fast, 20), 1024 * sizeof(float)) == 0;

  std::printf("\nx [64, 1024], plain and fast table\n");
  std::printf("all elements agree within 1e-5: %s\n", largest < 1e-5 ? "yes" : "NO");
  std::printf("row 20 alone, bit for bit as among the 64: %s\n", same ? "yes" : "NO");
  std::printf("~ compiled for [%s], largest difference %.1e\n", simd::kName, largest);
}

void show() {
  Ops plain_ops, fast_ops;
  plain_ops.rms_norm = plain::rms_norm;
  plain_ops.gated_rms_norm = plain::gated_rms_norm;
  fast_ops.rms_norm = fast::rms_norm;
  fast_ops.gated_rms_norm = fast::gated_rms_norm;

  show_sizes(plain_ops);
  show_centre();
  show_gate(plain_ops);
  compare(plain_ops, fast_ops);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Chapter 3: the norms, and the table of operators."};
  return run_program(app, argc, argv, show);
}
