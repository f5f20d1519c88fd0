// Chapter 5. How does a model know where a word stands?
//
// New module: rope. Pairs of dimensions of a query and a key are turned by angles that grow with
// their positions. The program shows the pairs as hands of a clock, that a product of a query and a
// key depends on their distance alone, what the distance does to it, and that the three positions
// of Qwen3.5's multimodal RoPE are one for text. --theta changes the speed of the hands.
#include <CLI/CLI.hpp>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numbers>

#include "qwen/program.h"
#include "qwen/rope.h"

using namespace qwen;

namespace {

// The full attention of Qwen3.5-0.8B.
Config config_with(double theta) {
  Config config;
  config.head_dim = 256;
  config.partial_rotary_factor = 0.25;
  config.rope_theta = theta;
  return config;
}

// x [D], turned as a token at `position` is.
Tensor3 turned(const Config& config, const Tensor3& x, int position) {
  Tensor3 y = x;
  const Rotation turn = rotation(config, position, 1);
  plain::rope(y, turn.cos, turn.sin);
  return y;
}

// x · y over the dimensions from `first` to `last`.
double dot(const Tensor3& x, const Tensor3& y, int first, int last) {
  double sum = 0;
  for (int i = first; i < last; ++i) sum += static_cast<double>(x(0, 0, i)) * y(0, 0, i);
  return sum;
}

// One head of one token; any numbers will do.
Tensor3 some_head(int D, double seed) {
  Tensor3 x = uninit(1, 1, D);
  for (int i = 0; i < D; ++i) x(0, 0, i) = static_cast<float>(std::sin(seed + 7 * i * seed));
  return x;
}

void show_hands(const Config& config) {
  const int R = rotary_dim(config);
  std::printf("%d of %d dimensions are turned: %d pairs, i and i + %d\n\n", R, config.head_dim,
              R / 2, R / 2);
  std::printf("%5s %14s %22s %18s\n", "pair", "dimensions", "radians per token", "tokens per turn");
  for (const int i : {0, 1, 4, 8, 16, 24, R / 2 - 1}) {
    const double frequency = std::pow(config.rope_theta, -2.0 * i / R);
    std::printf("%5d %7d and %2d %22.3g %18.1f\n", i, i, i + R / 2, frequency,
                2 * std::numbers::pi / frequency);
  }
}

void show_distance(const Config& config) {
  const int D = config.head_dim;
  const Tensor3 q = some_head(D, 1), k = some_head(D, 2);
  std::printf("\n%7s %7s %9s %14s\n", "q at", "k at", "distance", "q . k");
  for (const auto [m, n] : {std::array{9, 4}, {25, 20}, {2009, 2004}, {4, 9}, {9, 5}}) {
    const double product = dot(turned(config, q, m), turned(config, k, n), 0, D);
    std::printf("%7d %7d %9d %14.3f\n", m, n, m - n, product);
  }
  std::printf("The same distance gives the same product, wherever both stand.\n");
}

// A query looks back at a key that is the same vector, all ones.
void show_looking_back(const Config& config) {
  const int D = config.head_dim, R = rotary_dim(config), position = 4096;
  Tensor3 ones = uninit(1, 1, D);
  ones.fill(1);
  const Tensor3 q = turned(config, ones, position);
  std::printf("\n%9s %22s %22s\n", "distance", "turned part, of 1", "the rest, of 1");
  for (const int distance : {0, 1, 2, 3, 6, 10, 30, 100, 300, 1000, 4096}) {
    const Tensor3 k = turned(config, ones, position - distance);
    std::printf("%9d %22.3f %22.3f\n", distance, dot(q, k, 0, R) / R, dot(q, k, R, D) / (D - R));
  }
  std::printf(
      "What is turned grows unlike itself with distance; the rest compares meaning alone.\n");
}

// Pair i of multimodal RoPE looks at one of a token's three positions: time, row or column.
int axis(int i) {
  constexpr std::array kSection{11, 11, 10};  // mrope_section, interleaved
  return i < 3 * kSection[i % 3] ? i % 3 : 0;
}

void show_axes(const Config& config) {
  const auto angles = [&](const std::array<int, 3>& positions) {
    std::string text;
    for (const int i : {0, 1, 2, 3, 30, 31}) {
      const double frequency = std::pow(config.rope_theta, -2.0 * i / rotary_dim(config));
      char angle[16];
      std::snprintf(angle, sizeof angle, " %9.3g", positions[axis(i)] * frequency);
      text += angle;
    }
    return text;
  };
  std::printf("\n%-34s angles of pairs 0, 1, 2, 3, 30, 31\n", "time, row, column");
  std::printf("%-22s %s\n", "a patch at 5, 2, 7", angles({5, 2, 7}).c_str());
  std::printf("%-22s %s\n", "text at 5, 5, 5", angles({5, 5, 5}).c_str());
  std::printf("Text has three equal positions, and mrope is plain RoPE.\n");
}

// Token 203 computed alone and among 300; plain and fast.
void compare(const Config& config) {
  const Rotation all = rotation(config, 0, 300), alone = rotation(config, 203, 1);
  const std::size_t bytes = alone.cos.size() * sizeof(float);
  const bool same_angles = std::memcmp(row(all.cos, 203), alone.cos.data(), bytes) == 0 &&
                           std::memcmp(row(all.sin, 203), alone.sin.data(), bytes) == 0;
  Tensor3 x = some_head(config.head_dim, 3), y = x;
  plain::rope(x, alone.cos, alone.sin);
  fast::rope(y, alone.cos, alone.sin);
  const bool same = std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  std::printf("\nposition 203 alone, bit for bit as among 300: %s\n", same_angles ? "yes" : "NO");
  std::printf("plain and fast, bit for bit: %s\n", same ? "yes" : "NO");
}

void show(double theta) {
  const Config config = config_with(theta);
  show_hands(config);
  show_distance(config);
  show_looking_back(config);
  show_axes(config);
  compare(config);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Chapter 5: rotary position embedding."};
  double theta = 1e7;
  add_number(app, "--theta", theta, 1, 1e18, "rope_theta: the larger, the slower the slow hands")
      ->capture_default_str();
  return run_program(app, argc, argv, [&] { show(theta); });
}
