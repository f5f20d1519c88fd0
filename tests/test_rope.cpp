#include <cmath>
#include <string>

#include "qwen/rope.h"
#include "tests/support.h"

using namespace qwen;

namespace {

struct Version {
  std::string name;
  void (*rope)(Tensor3&, const Tensor2&, const Tensor2&);
};
const Version kVersions[] = {{"plain", plain::rope}, {"fast", fast::rope}};

Config rope_config(int head_dim, double partial_rotary_factor, double rope_theta) {
  Config config;
  config.head_dim = head_dim;
  config.partial_rotary_factor = partial_rotary_factor;
  config.rope_theta = rope_theta;
  return config;
}

Tensor3 turned(const Version& version, Tensor3 x, const Tensor2& cos, const Tensor2& sin) {
  version.rope(x, cos, sin);
  return x;
}

// [1, 1, D] · [1, 1, D]
float dot(const Tensor3& x, const Tensor3& y) {
  float sum = 0;
  for (int i = 0; i < dim(x, 2); ++i) sum += x(0, 0, i) * y(0, 0, i);
  return sum;
}

}  // namespace

TEST_CASE("rotation: pair i turns by position * rope_theta^(-2 i / R)") {
  const Config config = rope_config(10, 0.4, 100);  // 4 dimensions turn: two pairs
  const Rotation turn = rotation(config, 7, 2);
  const Tensor2 angles{{7, 0.7f}, {8, 0.8f}};
  for (int t = 0; t < 2; ++t) {
    for (int i = 0; i < 2; ++i) {
      CHECK(turn.cos(t, i) == doctest::Approx(std::cos(angles(t, i))).epsilon(1e-6));
      CHECK(turn.sin(t, i) == doctest::Approx(std::sin(angles(t, i))).epsilon(1e-6));
    }
  }
}

// The float functions of C libraries are off by up to 0.6 of a last place, each in places of its
// own; the numbers of a model must not depend on which of them a machine has.
TEST_CASE("rotation: cosines and sines are rounded correctly, in every C library") {
  const Config config = rope_config(64, 1, 1e7);
  constexpr int kPositions = 2000;
  const Rotation turn = rotation(config, 100'000, kPositions);
  int wrong = 0;
  for (int i = 0; i < 32; ++i) {
    const float power = static_cast<float>(std::pow(1e7L, static_cast<long double>(i) / 32));
    const float frequency = 1.0f / power;
    for (int t = 0; t < kPositions; ++t) {
      const float angle = static_cast<float>(100'000 + t) * frequency;
      const long double exact = angle;
      wrong += turn.cos(t, i) != static_cast<float>(std::cos(exact));
      wrong += turn.sin(t, i) != static_cast<float>(std::sin(exact));
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("rotation: equal to the reference, near the start and far into a context") {
  const Goldens ops = load_goldens("ops.safetensors");
  struct Place {
    Config config;
    int position;
    // Angles are float32 numbers here as there. Another pow may give the neighbouring frequency,
    // which is off by 6e-8 of itself; that moves the angle by 6e-8 * position.
    double tolerance;
  };
  for (const Place& place :
       {Place{rope_config(20, 0.6, 1e7), 0, 3e-7}, Place{rope_config(256, 0.25, 1e7), 4093, 3e-4},
        Place{rope_config(256, 0.25, 1e7), 200000, 1.2e-2}}) {
    const std::string name = "rotation." + std::to_string(place.position);
    const Rotation turn = rotation(place.config, place.position, 5);
    check_close(name, turn.cos, ops.tensor<2>(name + ".cos"), place.tolerance);
    check_close(name, turn.sin, ops.tensor<2>(name + ".sin"), place.tolerance);
  }
}

TEST_CASE("rotation: a position has the same bits whatever run it is part of") {
  const Config config = rope_config(256, 0.25, 1e7);
  const Rotation all = rotation(config, 0, 300), late = rotation(config, 203, 1);
  for (int i = 0; i < 32; ++i) {
    CHECK(late.cos(0, i) == all.cos(203, i));
    CHECK(late.sin(0, i) == all.sin(203, i));
  }
}

TEST_CASE("rope: a quarter turn takes (a, b) to (-b, a), pairs are R / 2 apart, the rest stays") {
  const Tensor3 x{{{1, 2, 3, 4, 5}, {10, 20, 30, 40, 50}}};
  const Tensor2 cos{{0, 1}}, sin{{1, 0}};  // pair 0: dimensions 0 and 2; pair 1: not turned
  const Tensor3 expected{{{-3, 2, 1, 4, 5}, {-30, 20, 10, 40, 50}}};
  for (const Version& v : kVersions) check_same_bits(v.name, turned(v, x, cos, sin), expected);
}

TEST_CASE("rope: without rotated dimensions nothing changes, not even a NaN") {
  const Tensor3 x{{{1, -0.0f, NAN}}};
  for (const Version& v : kVersions)
    check_same_bits(v.name, turned(v, x, zeros(1, 0), zeros(1, 0)), x);
}

TEST_CASE("rope: the product of a query and a key depends on their distance alone") {
  const Config config = rope_config(6, 1, 50);
  const Tensor3 q{{{1, 2, -1, 0.5f, 3, -2}}}, k{{{-1, 1, 2, 2, 0.5f, 1}}};
  const auto product = [&](const Version& v, int query_position, int key_position) {
    const Rotation at_q = rotation(config, query_position, 1);
    const Rotation at_k = rotation(config, key_position, 1);
    return dot(turned(v, q, at_q.cos, at_q.sin), turned(v, k, at_k.cos, at_k.sin));
  };
  for (const Version& v : kVersions) {
    CHECK(product(v, 9, 4) == doctest::Approx(product(v, 25, 20)).epsilon(1e-5));
    CHECK(product(v, 9, 4) != doctest::Approx(product(v, 4, 9)).epsilon(1e-2));
  }
}

TEST_CASE("rope: equal to the reference") {
  const Goldens ops = load_goldens("ops.safetensors");
  for (const Version& v : kVersions) {
    // Two products and a sum, each rounded once: 6e-8 of numbers up to twice the largest result.
    check_close(
        v.name,
        turned(v, ops.tensor<3>("rope.x"), ops.tensor<2>("rope.cos"), ops.tensor<2>("rope.sin")),
        ops.tensor<3>("rope.y"), 2e-7);
  }
}

TEST_CASE("rope: equal to the reference in every family") {
  struct Family {
    std::string name;
    Config config;
    int layer;
  };
  for (const Family& family :
       {Family{"tiny", rope_config(20, 0.6, 1e7), 3},
        Family{"grouped", rope_config(10, 0.4, 1e6), 1},
        Family{"qwen3", rope_config(16, 1, 1e6), 0}, Family{"llama", rope_config(12, 1, 1e5), 0}}) {
    const Goldens trace = load_goldens(family.name + ".safetensors");
    const std::string layer = "t13.layers." + std::to_string(family.layer) + ".self_attn.";
    const Rotation turn = rotation(family.config, 0, 13);
    // Positions up to 12: a neighbouring frequency moves an angle by at most 12 * 6e-8.
    check_close(family.name, turn.cos, trace.tensor<2>("t13.cos"), 8e-7);
    check_close(family.name, turn.sin, trace.tensor<2>("t13.sin"), 8e-7);
    for (const Version& v : kVersions) {
      for (const std::string what : {"q", "k"}) {
        check_close(v.name + " " + what + " in " + family.name,
                    turned(v, trace.tensor<3>(layer + what), turn.cos, turn.sin),
                    trace.tensor<3>(layer + what + "_rotated"), 1e-6);
      }
    }
  }
}

TEST_CASE("rope: a rotation that does not fit is named") {
  Tensor3 x = zeros(2, 3, 5);
  for (const Version& v : kVersions) {
    check_throws_with([&] { v.rope(x, zeros(2, 3), zeros(2, 3)); },
                      "[rope] 3 pairs do not fit in heads of 5 dimensions");
    check_throws_with([&] { v.rope(x, zeros(1, 2), zeros(1, 2)); },
                      "[rope] cos is [1, 2], expected [2, 2]");
    check_throws_with([&] { v.rope(x, zeros(2, 2), zeros(2, 1)); },
                      "[rope] sin is [2, 1], expected [2, 2]");
  }
}
