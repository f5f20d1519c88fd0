// Chapter 7. What can a memory of fixed size remember?
//
// New module: deltanet. One head's state S is used as an associative memory, through the operator
// itself: people are keys, cities are values, all of them random directions. The program stores
// pairs and asks for them, overwrites one, lets old ones fade, and writes more than fits. Poke it:
// --pairs, --overwrite, --decay, --beta, --angle, --size.
#include <CLI/CLI.hpp>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numbers>
#include <numeric>
#include <random>
#include <stdexcept>

#include "qwen/deltanet.h"
#include "qwen/program.h"

using namespace qwen;

namespace {

constexpr std::array kPeople{"Ann", "Bob", "Cai", "Dee", "Eva", "Fay", "Gus", "Hal"};
constexpr std::array kCities{"Athens", "Berlin", "Cairo",  "Delhi", "Essen",
                             "Fes",    "Genoa",  "Havana", "Izmir"};
constexpr int kDv = 48;

struct Options {
  int pairs = 8, overwrite = 1, size = 64;  // size: of a key, the rows of S
  double decay = 0.9, beta = 1, angle = 90;
};

double dot(const float* x, const float* y, int n) {
  return std::inner_product(x, x + n, y, 0.0);
}

void normalize(float* x, int n) {
  const double length = std::sqrt(dot(x, x, n));
  for (int i = 0; i < n; ++i) x[i] = static_cast<float>(x[i] / length);
}

// count random rows of length 1.
Tensor2 directions(std::mt19937& random, int count, int size) {
  Tensor2 x = uninit(count, size);
  for (float& value : x) value = static_cast<float>(random()) * 0x1p-31f - 1;
  for (int i = 0; i < count; ++i) normalize(row(x, i), size);
  return x;
}

// Row 1 is turned until it is `degrees` away from row 0.
void set_angle(Tensor2& x, float degrees) {
  const int n = dim(x, 1);
  const float along = static_cast<float>(dot(row(x, 0), row(x, 1), n));
  for (int i = 0; i < n; ++i) x(1, i) -= along * x(0, i);
  normalize(row(x, 1), n);
  const float radians = degrees * std::numbers::pi_v<float> / 180;
  for (int i = 0; i < n; ++i) x(1, i) = std::cos(radians) * x(0, i) + std::sin(radians) * x(1, i);
}

// T tokens with keys k [T, Dk] and the first T of the values; each also asks for its own key.
// -> [T, Dv]
template <class Rule>
Tensor2 run(Rule rule, Tensor3& S, const Tensor2& k, const Tensor2& v, float decay, float beta) {
  const int T = dim(k, 0), Dk = dim(k, 1), Dv = dim(v, 1);
  const Qkv qkv{reshape(Tensor2(k), T, 1, Dk), reshape(Tensor2(k), T, 1, Dk),
                reshape(slice(v, 0, T), T, 1, Dv)};
  Tensor2 g = uninit(T, 1), all_beta = uninit(T, 1);
  g.fill(std::log(decay));
  all_beta.fill(beta);
  return reshape(rule(qkv, g, all_beta, {0}, S), T, Dv);
}

void store(Tensor3& S, const Tensor2& k, const Tensor2& v, float decay, float beta) {
  run(plain::delta_rule, S, k, v, decay, beta);
}
Tensor2 recall(Tensor3& S, const Tensor2& k) {
  return run(plain::delta_rule, S, k, zeros(dim(k, 0), dim(S, 2)), 1, 0);  // writes nothing
}

// The value that is most alike to what was recalled.
int nearest(const float* recalled, const Tensor2& values) {
  int best = 0;
  for (int i = 1; i < dim(values, 0); ++i) {
    if (dot(recalled, row(values, i), kDv) > dot(recalled, row(values, best), kDv)) best = i;
  }
  return best;
}

void ask_everybody(Tensor3& S, const Tensor2& keys, const Tensor2& values) {
  const Tensor2 recalled = recall(S, keys);
  for (int i = 0; i < dim(keys, 0); ++i) {
    const int city = nearest(row(recalled, i), values);
    std::printf("  %s: %-6s %5.2f", kPeople[i], kCities[city],
                dot(row(recalled, i), row(values, city), kDv));
    if (i % 4 == 3 || i == dim(keys, 0) - 1) std::printf("\n");
  }
}

void show_overwrite(const Options& o, const Tensor2& keys, const Tensor2& values) {
  Tensor3 S = zeros(1, o.size, kDv), added = S;
  store(S, keys, values, 1, o.beta);
  std::printf("S [%d, %d], %d pairs stored, beta %g, no decay\n", o.size, kDv, o.pairs, o.beta);
  ask_everybody(S, keys, values);

  const int who = o.overwrite - 1, from = who, to = static_cast<int>(kCities.size()) - 1;
  const Tensor2 key = slice(keys, who, 1);
  store(S, key, slice(values, to, 1), 1, o.beta);
  std::printf("\n%s moves to %s\n", kPeople[who], kCities[to]);
  ask_everybody(S, keys, values);

  // A write into an empty memory finds nothing to correct. The sum of such memories is what
  // addition alone would have made.
  for (const int city : {from, to}) {
    Tensor3 one = zeros(1, o.size, kDv);
    store(one, key, slice(values, city, 1), 1, o.beta);
    added += one;
  }
  std::printf("\nasked for %s: %11s %8s\n", kPeople[who], kCities[from], kCities[to]);
  for (auto [name, memory] : {std::pair{"delta rule", &S}, {"addition", &added}}) {
    const Tensor2 y = recall(*memory, key);
    std::printf("  %-13s %11.2f %8.2f\n", name, dot(y.data(), row(values, from), kDv),
                dot(y.data(), row(values, to), kDv));
  }
}

void show_fading(const Options& o, const Tensor2& keys, const Tensor2& values) {
  Tensor3 S = zeros(1, o.size, kDv);
  store(S, keys, values, o.decay, o.beta);
  const Tensor2 recalled = recall(S, keys);
  std::printf("\nthe same pairs, one token each, decay %g\n", o.decay);
  std::printf("  %-6s %6s %8s %12s\n", "", "age", "share", "decay^age");
  for (int i = 0; i < o.pairs; ++i) {
    const int age = o.pairs - 1 - i;
    std::printf("  %-6s %6d %8.2f %12.2f\n", kPeople[i], age,
                dot(row(recalled, i), row(values, i), kDv), std::pow(o.decay, age));
  }
}

void show_crowd(const Options& o) {
  const int some = o.size / 4;
  std::printf("\nmore pairs than rows, no decay\n  %8s   first %d right   last %d right\n", "pairs",
              some, some);
  for (const int pairs : {some, o.size, 2 * o.size, 4 * o.size, 16 * o.size}) {
    std::mt19937 random(7);
    const Tensor2 keys = directions(random, pairs, o.size), values = directions(random, pairs, kDv);
    Tensor3 S = zeros(1, o.size, kDv);
    store(S, keys, values, 1, o.beta);
    const Tensor2 recalled = recall(S, keys);
    int first = 0, last = 0;
    for (int i = 0; i < some; ++i) {
      first += nearest(row(recalled, i), values) == i;
      last += nearest(row(recalled, pairs - 1 - i), values) == pairs - 1 - i;
    }
    std::printf("  %8d %16d %15d\n", pairs, first, last);
  }
  std::printf("S never grew: what is old makes room for what is new.\n");
}

// The fast rule, all pairs in one call and one by one.
void compare(const Options& o, const Tensor2& keys, const Tensor2& values) {
  Tensor3 S = zeros(1, o.size, kDv), at_once = S, one_by_one = S;
  store(S, keys, values, o.decay, o.beta);
  run(fast::delta_rule, at_once, keys, values, o.decay, o.beta);
  for (int i = 0; i < o.pairs; ++i) {
    run(fast::delta_rule, one_by_one, slice(keys, i, 1), slice(values, i, 1), o.decay, o.beta);
  }
  double largest = 0;
  for (std::size_t i = 0; i < S.size(); ++i) {
    largest = std::max(largest, std::abs(double{S.data()[i]} - at_once.data()[i]));
  }
  const bool same = std::memcmp(at_once.data(), one_by_one.data(), S.size() * sizeof(float)) == 0;
  std::printf("\nS of the plain and the fast rule agree within 1e-6: %s\n",
              largest < 1e-6 ? "yes" : "NO");
  std::printf("fast, in one call and token by token, bit for bit: %s\n", same ? "yes" : "NO");
}

void show(const Options& o) {
  if (o.overwrite > o.pairs) throw std::invalid_argument("--overwrite: no such pair is stored");
  std::mt19937 random(1);
  Tensor2 keys = directions(random, static_cast<int>(kPeople.size()), o.size);
  const Tensor2 values = directions(random, static_cast<int>(kCities.size()), kDv);
  set_angle(keys, o.angle);
  keys = slice(keys, 0, o.pairs);
  std::printf("%s and %s stand %g degrees apart\n", kPeople[0], kPeople[1], o.angle);
  show_overwrite(o, keys, values);
  show_fading(o, keys, values);
  show_crowd(o);
  compare(o, keys, values);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Chapter 7: the delta rule as an associative memory."};
  Options o;
  const int people = static_cast<int>(kPeople.size());
  add_integer(app, "--pairs", o.pairs, 1, people, "pairs to store");
  add_integer(app, "--overwrite", o.overwrite, 1, people, "which of them moves");
  add_number(app, "--decay", o.decay, 1e-6, 1, "what is left after a token");
  add_number(app, "--beta", o.beta, 0, 1, "how much of a value is replaced");
  add_number(app, "--angle", o.angle, 1, 90, "degrees between the first keys");
  add_integer(app, "--size", o.size, 4, 512, "of a key: the rows of S");
  return run_program(app, argc, argv, [&] { show(o); });
}
