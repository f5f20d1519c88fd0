#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "qwen/deltanet.h"
#include "qwen/linear.h"
#include "qwen/norm.h"
#include "qwen/parallel.h"
#include "qwen/weights.h"
#include "tests/support.h"

using namespace qwen;

namespace {

Ops plain_ops() {
  Ops ops;
  ops.gated_rms_norm = plain::gated_rms_norm;
  ops.products = one_by_one(plain::linear);
  ops.conv_qkv = plain::conv_qkv;
  ops.delta_rule = plain::delta_rule;
  return ops;
}

Ops fast_ops() {
  Ops ops;
  ops.gated_rms_norm = fast::gated_rms_norm;
  ops.products = fast::products;
  ops.conv_qkv = fast::conv_qkv;
  ops.delta_rule = fast::delta_rule;
  return ops;
}

struct Version {
  std::string name;
  Ops ops;
};
const Version kVersions[] = {{"plain", plain_ops()}, {"fast", fast_ops()}};

// Rows first … first + count - 1.
Tensor3 slice(const Tensor3& x, int first, int count) {
  Tensor3 part = uninit(count, dim(x, 1), dim(x, 2));
  std::copy_n(row(x, first), part.size(), part.data());
  return part;
}

// What the delta rule is given, token by token.
struct Inputs {
  Qkv qkv;
  Tensor2 g, beta;

  int tokens() const { return dim(g, 0); }
};

Inputs slice(const Inputs& in, int first, int count) {
  return {
      {slice(in.qkv.q, first, count), slice(in.qkv.k, first, count), slice(in.qkv.v, first, count)},
      slice(in.g, first, count),
      slice(in.beta, first, count)};
}

Inputs load_inputs(const Goldens& file, const std::string& prefix) {
  return {
      {file.tensor<3>(prefix + "q"), file.tensor<3>(prefix + "k"), file.tensor<3>(prefix + "v")},
      file.tensor<2>(prefix + "g"),
      file.tensor<2>(prefix + "beta")};
}

// Consecutive value heads share a key head.
std::vector<int> key_heads(int Hk, int Hv) {
  std::vector<int> map(Hv);
  for (int h = 0; h < Hv; ++h) map[h] = h / (Hv / Hk);
  return map;
}

Tensor3 run(const Version& v, const Inputs& in, Tensor3& S) {
  const std::vector<int> key_head = key_heads(dim(in.qkv.k, 1), dim(in.qkv.v, 1));
  return v.ops.delta_rule(in.qkv, in.g, in.beta, key_head, S);
}

// The reference's runs of 13 and of 70 tokens.
std::string trace_of(int T) {
  return T == 13 ? "t13." : "t70.";
}

// A checkpoint's layer 0, which is a DeltaNet, and what the reference saw pass through it.
struct Fixture {
  Config config;
  DeltaNet weights;
  Goldens trace;

  explicit Fixture(const std::string& name)
      : config(read_config("checkpoints/" + name)), trace(load_goldens(name + ".safetensors")) {
    const Checkpoint checkpoint = open_checkpoint("checkpoints/" + name);
    const auto named = [](const std::string& part) { return "model.layers.0.linear_attn." + part; };
    const int H = config.hidden_size, Dv = config.linear_value_head_dim;
    const int Hk = config.linear_num_key_heads, Hv = config.linear_num_value_heads;
    const int C = 2 * Hk * config.linear_key_head_dim + Hv * Dv;
    const int width = config.linear_conv_kernel_dim;
    weights.in_proj_qkv = matrix(checkpoint, named("in_proj_qkv.weight"), C, H);
    weights.in_proj_z = matrix(checkpoint, named("in_proj_z.weight"), Hv * Dv, H);
    weights.in_proj_a = matrix(checkpoint, named("in_proj_a.weight"), Hv, H);
    weights.in_proj_b = matrix(checkpoint, named("in_proj_b.weight"), Hv, H);
    weights.out_proj = matrix(checkpoint, named("out_proj.weight"), H, Hv * Dv);
    weights.conv1d = by_tap(vector(checkpoint, named("conv1d.weight"), {C, 1, width}), width);
    weights.A = vector(checkpoint, named("A_log"), {Hv});
    for (float& a : weights.A) a = -std::exp(a);
    weights.dt_bias = vector(checkpoint, named("dt_bias"), {Hv});
    weights.norm = vector(checkpoint, named("norm.weight"), {Dv});
    weights.key_head = key_heads(Hk, Hv);
  }

  Tensor2 input(int T) const {
    return trace.tensor<2>(trace_of(T) + "layers.0.input_layernorm.out");
  }
};

Tensor2 run(const Version& version, const Fixture& at, const Tensor2& x, DeltaState& state) {
  const std::vector<Share<DeltaState>> alone{{&state, dim(x, 0)}};
  return deltanet_forward(version.ops, at.config, at.weights, x, alone);
}

}  // namespace

TEST_CASE("gates: equal to the reference, number by number, and finite far out") {
  const Goldens ops = load_goldens("ops.safetensors");
  const Tensor2 g = ops.tensor<2>("gates.g"), beta = ops.tensor<2>("gates.beta");
  const Gates y = gates(ops.tensor<2>("gates.a"), ops.tensor<2>("gates.b"),
                        ops.tensor<1>("gates.A"), ops.tensor<1>("gates.dt_bias"));
  check_close("g", y.g, g, 4e-7);
  for (int t = 0; t < dim(g, 0); ++t) {
    for (int h = 0; h < dim(g, 1); ++h) {
      // A small g is a slow decay: it has to be right in its own digits. The sum a + dt_bias is
      // off by up to 6e-8 of itself, up to 1e-5 in its exponential; denormals have fewer digits.
      const double allowed = 1e-5 * std::abs(g(t, h)) + 1e-37;
      CHECK(std::abs(y.g(t, h) - g(t, h)) <= allowed);
      CHECK(y.beta(t, h) == doctest::Approx(beta(t, h)).epsilon(1e-6));
    }
  }
}

TEST_CASE("gates: rounded correctly, in every C library") {
  constexpr int T = 20'000;
  Tensor2 a = uninit(T, 1), b = uninit(T, 1);
  for (int t = 0; t < T; ++t) {
    a(t, 0) = 0.003f * static_cast<float>(t - T / 2);
    b(t, 0) = 0.001f * static_cast<float>(T / 2 - t);
  }
  const Gates y = gates(a, b, Tensor1{-1}, Tensor1{0});
  int wrong = 0;
  for (int t = 0; t < T; ++t) {
    const long double x = a(t, 0), z = b(t, 0);
    wrong += y.g(t, 0) != -static_cast<float>(x > 20 ? x : std::log1p(std::exp(x)));
    wrong += y.beta(t, 0) != static_cast<float>(1 / (1 + std::exp(-z)));
  }
  CHECK(wrong == 0);
}

TEST_CASE("gates: a wrong shape is named") {
  check_throws_with([] { gates(zeros(2, 3), zeros(2, 4), zeros(3), zeros(3)); },
                    "[gates] b is [2, 4], expected [2, 3]");
  check_throws_with([] { gates(zeros(2, 3), zeros(2, 3), zeros(4), zeros(3)); },
                    "[gates] A is [4], expected [3]");
  check_throws_with([] { gates(zeros(2, 3), zeros(2, 3), zeros(3), zeros(4)); },
                    "[gates] dt_bias is [4], expected [3]");
}

TEST_CASE("conv_qkv: taps meet the inputs oldest first, and the last three inputs are kept") {
  // One channel each for q and k, one for v with the taps 1, 10, 100, 1000. Numbers this large pass
  // silu unchanged.
  const Ops::Heads heads{.Hk = 1, .Dk = 1, .Hv = 1, .Dv = 1};
  const Tensor2 kernel{{0, 0, 1}, {0, 0, 10}, {0, 0, 100}, {1, -1, 1000}};
  const Tensor2 in{{100, 100, 1}, {100, 100, 2}, {100, 100, 3}, {100, 100, 4}, {100, 100, 5}};
  for (const Version& v : kVersions) {
    Tensor2 tail = zeros(3, 3);
    const Qkv y = v.ops.conv_qkv(in, kernel, heads, tail);
    const float expected[] = {1000, 2100, 3210, 4321, 5432};
    for (int t = 0; t < 5; ++t) CHECK(y.v(t, 0, 0) == doctest::Approx(expected[t]));
    check_close(v.name + " q", y.q, Tensor3{{{1}}, {{1}}, {{1}}, {{1}}, {{1}}}, 1e-6);
    check_same_bits(v.name, tail, Tensor2{{100, 100, 3}, {100, 100, 4}, {100, 100, 5}});
  }
}

TEST_CASE("conv_qkv: q and k have length 1, q then shrinks by sqrt(Dk); zeros stay zeros") {
  const Ops::Heads heads{.Hk = 1, .Dk = 2, .Hv = 1, .Dv = 1};
  const Tensor2 kernel{{0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}, {1, 1, 1, 1, 1}};
  const Tensor2 in{{300, 400, 0, 0, 7}};
  for (const Version& v : kVersions) {
    Tensor2 tail = zeros(3, 5);
    const Qkv y = v.ops.conv_qkv(in, kernel, heads, tail);
    const float root = std::sqrt(2.0f);
    check_close(v.name + " q", y.q, Tensor3{{{0.6f / root, 0.8f / root}}}, 2e-7);
    check_same_bits(v.name + " k", y.k, Tensor3{{{0, 0}}});
  }
}

TEST_CASE("conv_qkv: equal to the reference, and in any pieces the bits of one go") {
  const Goldens ops = load_goldens("ops.safetensors");
  const Ops::Heads heads{.Hk = 2, .Dk = 24, .Hv = 4, .Dv = 7};
  const Tensor2 in = ops.tensor<2>("conv_qkv.in"), kernel = ops.tensor<2>("conv_qkv.kernel");
  for (const Version& v : kVersions) {
    Tensor2 tail = ops.tensor<2>("conv_qkv.tail");
    const Qkv all = v.ops.conv_qkv(in, kernel, heads, tail);
    // Four products, silu, a sum of 24 squares: some ten roundings of 6e-8.
    check_close(v.name + " q", all.q, ops.tensor<3>("conv_qkv.q"), 1e-6);
    check_close(v.name + " k", all.k, ops.tensor<3>("conv_qkv.k"), 1e-6);
    check_close(v.name + " v", all.v, ops.tensor<3>("conv_qkv.v"), 1e-6);
    check_same_bits(v.name + " tail", tail, slice(in, 6, 3));

    for (const std::vector<int>& pieces :
         {std::vector<int>{1, 8}, {2, 7}, {3, 6}, {4, 1, 2, 2}, std::vector<int>(9, 1)}) {
      Tensor2 moved = ops.tensor<2>("conv_qkv.tail");
      int first = 0;
      for (const int rows : pieces) {
        const Qkv part = v.ops.conv_qkv(slice(in, first, rows), kernel, heads, moved);
        check_same_bits(v.name + " q", part.q, slice(all.q, first, rows));
        check_same_bits(v.name + " k", part.k, slice(all.k, first, rows));
        check_same_bits(v.name + " v", part.v, slice(all.v, first, rows));
        first += rows;
      }
      check_same_bits(v.name + " tail", moved, tail);
    }
  }
}

TEST_CASE("conv_qkv: a wrong shape is named") {
  const Ops::Heads heads{.Hk = 1, .Dk = 2, .Hv = 1, .Dv = 3};
  for (const Version& v : kVersions) {
    Tensor2 tail = zeros(3, 7), short_tail = zeros(2, 7);
    check_throws_with([&] { v.ops.conv_qkv(zeros(5, 8), zeros(4, 7), heads, tail); },
                      "[conv_qkv] in is [5, 8], expected [5, 7]");
    check_throws_with([&] { v.ops.conv_qkv(zeros(5, 7), zeros(4, 8), heads, tail); },
                      "[conv_qkv] kernel is [4, 8], expected [4, 7]");
    check_throws_with([&] { v.ops.conv_qkv(zeros(5, 7), zeros(4, 7), heads, short_tail); },
                      "[conv_qkv] tail is [2, 7], expected [3, 7]");
  }
}

TEST_CASE("delta_rule: a memory that stores, recalls, overwrites and forgets") {
  // Keys are the two axes; q reads what was just written, or the other key.
  Inputs in{{zeros(4, 1, 2), zeros(4, 1, 2), zeros(4, 1, 3)}, zeros(4, 1), zeros(4, 1)};
  const auto token = [&](int t, int key, int read, float value, float beta, float decay) {
    in.qkv.k(t, 0, key) = 1;
    in.qkv.q(t, 0, read) = 1;
    for (int j = 0; j < 3; ++j) in.qkv.v(t, 0, j) = value * (j + 1);
    in.beta(t, 0) = beta;
    in.g(t, 0) = std::log(decay);
  };
  token(0, 0, 0, 8, 1, 1);     // store 8, read it
  token(1, 1, 0, 5, 1, 1);     // store 5 elsewhere, read the 8
  token(2, 0, 0, 2, 0.5f, 1);  // overwrite half of the 8 by 2
  token(3, 1, 0, 5, 1, 0.5f);  // all that was there fades to half
  const Tensor3 expected{{{8, 16, 24}}, {{8, 16, 24}}, {{5, 10, 15}}, {{2.5, 5, 7.5}}};
  for (const Version& v : kVersions) {
    Tensor3 S = zeros(1, 2, 3);
    check_close(v.name, run(v, in, S), expected, 1e-6);
    check_close(v.name + " S", S, Tensor3{{{2.5, 5, 7.5}, {5, 10, 15}}}, 1e-6);
  }
}

TEST_CASE("delta_rule: equal to the reference, from nothing and from a state") {
  const Goldens ops = load_goldens("ops.safetensors");
  const Inputs all = load_inputs(ops, "delta.");
  const Tensor3 o = ops.tensor<3>("delta.o");
  // A token adds some ten roundings of 6e-8 to S; the decay and the overwriting keep them from
  // piling up.
  constexpr double tolerance = 1e-6;
  for (const Version& v : kVersions) {
    for (const int T : {5, 70, 130}) {
      Tensor3 S = zeros(4, 24, 40);
      const std::string name = v.name + " T " + std::to_string(T);
      check_close(name, run(v, slice(all, 0, T), S), slice(o, 0, T), tolerance);
      check_close(name + " S", S, ops.tensor<3>("delta.S." + std::to_string(T)), tolerance);
    }
    Tensor3 S = ops.tensor<3>("delta.S_before");
    check_close(v.name + " warm", run(v, slice(all, 0, 70), S), ops.tensor<3>("delta.warm.o"),
                tolerance);
    check_close(v.name + " warm S", S, ops.tensor<3>("delta.warm.S"), tolerance);
  }
}

TEST_CASE("delta_rule: equal to a float64 recurrence where the numbers are hard") {
  const Goldens ops = load_goldens("ops.safetensors");
  for (const char* name : {"same_key", "two_keys", "fast_decay", "vanish", "no_decay"}) {
    const std::string prefix = std::string("stress.") + name + ".";
    const Inputs in = load_inputs(ops, prefix);
    for (const Version& v : kVersions) {
      Tensor3 S = zeros(2, 6, 5);
      check_close(v.name + " " + name, run(v, in, S), ops.tensor<3>(prefix + "o"), 1e-6);
      check_close(v.name + " " + name + " S", S, ops.tensor<3>(prefix + "S"), 1e-6);
    }
  }
}

TEST_CASE("delta_rule: in any pieces, on any number of threads, the bits are those of one go") {
  const Goldens ops = load_goldens("ops.safetensors");
  const Inputs all = load_inputs(ops, "delta.");
  const int threads_before = thread_count();
  for (const Version& v : kVersions) {
    set_thread_count(1);
    Tensor3 S = ops.tensor<3>("delta.S_before");
    const Tensor3 expected = run(v, all, S);
    for (const std::vector<int>& pieces : {std::vector<int>{130},
                                           {1, 129},
                                           {63, 1, 66},
                                           {64, 64, 2},
                                           {65, 65},
                                           std::vector<int>(130, 1)}) {
      for (const int threads : {1, 3}) {
        set_thread_count(threads);
        Tensor3 moved = ops.tensor<3>("delta.S_before");
        int first = 0;
        for (const int rows : pieces) {
          check_same_bits(v.name, run(v, slice(all, first, rows), moved),
                          slice(expected, first, rows));
          first += rows;
        }
        check_same_bits(v.name + " S", moved, S);
      }
    }
  }
  set_thread_count(threads_before);
}

TEST_CASE("delta_rule: key_head says whose q and k a value head takes") {
  const Inputs in = slice(load_inputs(load_goldens("ops.safetensors"), "delta."), 0, 5);
  Inputs swapped = in;  // the two key heads in the other order
  for (int t = 0; t < 5; ++t) {
    for (Tensor3* x : {&swapped.qkv.q, &swapped.qkv.k}) {
      std::swap_ranges(row(*x, t), row(*x, t) + 24, row(*x, t) + 24);
    }
  }
  for (const Version& v : kVersions) {
    Tensor3 S = zeros(4, 24, 40), S_swapped = S;
    const Tensor3 o = v.ops.delta_rule(in.qkv, in.g, in.beta, {1, 0, 0, 1}, S);
    check_same_bits(v.name, v.ops.delta_rule(swapped.qkv, in.g, in.beta, {0, 1, 1, 0}, S_swapped),
                    o);
    check_same_bits(v.name + " S", S_swapped, S);
  }
}

TEST_CASE("delta_rule: a wrong shape is named") {
  const Inputs in{{zeros(5, 1, 2), zeros(5, 1, 2), zeros(5, 2, 3)}, zeros(5, 2), zeros(5, 2)};
  for (const Version& v : kVersions) {
    Tensor3 S = zeros(2, 2, 3), turned = zeros(2, 3, 2);
    check_throws_with([&] { run(v, in, turned); },
                      "[delta_rule] S is [2, 3, 2], expected [2, 2, 3]");
    check_throws_with(
        [&] {
          v.ops.delta_rule(in.qkv, zeros(4, 2), in.beta, {0, 0}, S);
        },
        "[delta_rule] g is [4, 2], expected [5, 2]");
    check_throws_with(
        [&] {
          v.ops.delta_rule(in.qkv, in.g, zeros(5, 1), {0, 0}, S);
        },
        "[delta_rule] beta is [5, 1], expected [5, 2]");
  }
}

TEST_CASE(
    "deltanet_forward: equal to the reference, with as many value heads as key heads or more") {
  for (const char* name : {"tiny", "grouped"}) {
    const Fixture at(name);
    for (const int T : {13, 70}) {
      const std::string run_name = trace_of(T) + "layers.0.linear_attn.";
      for (const Version& v : kVersions) {
        DeltaState state = empty_delta_state(at.config);
        // Sums of up to 102 terms at both ends, the delta rule and a norm between them: each is off
        // by a few times 6e-8.
        check_close(v.name + " in " + name, run(v, at, at.input(T), state),
                    at.trace.tensor<2>(run_name + "out"), 2e-6);
        check_close(v.name + " S in " + name, state.S, at.trace.tensor<3>(run_name + "S"), 2e-6);
      }
    }
  }
}

TEST_CASE("deltanet_forward: every step equal to the reference") {
  const Fixture at("grouped");
  const std::string layer = "t13.layers.0.linear_attn.";
  const Ops::Heads heads{.Hk = 2, .Dk = 24, .Hv = 6, .Dv = 17};
  const Gates y =
      gates(at.trace.tensor<2>(layer + "in_proj_a.out"),
            at.trace.tensor<2>(layer + "in_proj_b.out"), at.weights.A, at.weights.dt_bias);
  check_close("g", y.g, at.trace.tensor<2>(layer + "g"), 4e-7);
  check_close("beta", y.beta, at.trace.tensor<2>(layer + "beta"), 4e-7);
  const Inputs in = load_inputs(at.trace, layer);
  for (const Version& v : kVersions) {
    Tensor2 tail = zeros(3, 198);
    const Qkv qkv = v.ops.conv_qkv(at.trace.tensor<2>(layer + "in_proj_qkv.out"), at.weights.conv1d,
                                   heads, tail);
    check_close(v.name + " q", qkv.q, in.qkv.q, 1e-6);
    check_close(v.name + " k", qkv.k, in.qkv.k, 1e-6);
    check_close(v.name + " v", qkv.v, in.qkv.v, 1e-6);
    Tensor3 S = zeros(6, 24, 17);
    check_close(v.name + " o", run(v, in, S), at.trace.tensor<3>(layer + "o"), 1e-6);
  }
}

TEST_CASE("deltanet_forward: in any pieces, shorter than the convolution too, the bits of one go") {
  const Fixture at("tiny");
  const Tensor2 x = at.input(70);
  for (const Version& v : kVersions) {
    DeltaState whole = empty_delta_state(at.config);
    const Tensor2 expected = run(v, at, x, whole);
    for (const std::vector<int>& pieces : {std::vector<int>{1, 69},
                                           {2, 68},
                                           {3, 67},
                                           {2, 1, 67},
                                           {64, 6},
                                           std::vector<int>(70, 1)}) {
      DeltaState state = empty_delta_state(at.config);
      int first = 0;
      for (const int rows : pieces) {
        check_same_bits(v.name, run(v, at, slice(x, first, rows), state),
                        slice(expected, first, rows));
        first += rows;
      }
      check_same_bits(v.name + " S", state.S, whole.S);
      check_same_bits(v.name + " tail", state.tail, whole.tail);
    }
  }
}

TEST_CASE("deltanet_forward: packed sequences have the bits of each alone") {
  const Fixture at("grouped");
  const Tensor2 x = at.input(13);
  for (const Version& v : kVersions) {
    DeltaState a = empty_delta_state(at.config), b = a;
    run(v, at, slice(x, 0, 4), a);
    DeltaState a_alone = a, b_alone = b;
    const std::vector<Share<DeltaState>> shares{{&b, 6}, {&a, 1}};
    const Tensor2 y = deltanet_forward(v.ops, at.config, at.weights, slice(x, 4, 7), shares);
    check_same_bits(v.name, slice(y, 0, 6), run(v, at, slice(x, 4, 6), b_alone));
    check_same_bits(v.name, slice(y, 6, 1), run(v, at, slice(x, 10, 1), a_alone));
    check_same_bits(v.name + " S", a.S, a_alone.S);
    check_same_bits(v.name + " S", b.S, b_alone.S);
  }
}
