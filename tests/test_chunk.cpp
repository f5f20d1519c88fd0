#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "qwen/chunk.h"
#include "qwen/deltanet.h"
#include "qwen/segment.h"
#include "tests/support.h"

using namespace qwen;

namespace {

struct Version {
  std::string name;
  Tensor3 (*chunk_delta_rule)(const Qkv&, const Tensor2&, const Tensor2&, const std::vector<int>&,
                              Tensor3&, int);
};
const Version kVersions[] = {{"plain", plain::chunk_delta_rule}, {"fast", fast::chunk_delta_rule}};

// A chunk's sums have up to 64 terms where the recurrence has one at a time, and the forward
// substitution hands on the errors of the rows above. The reference's own chunks in float32 are off
// by 1.2e-6 of the largest output.
constexpr double kTolerance = 1.5e-6;

// What the delta rule is given, token by token.
struct Inputs {
  Qkv qkv;
  Tensor2 g, beta;
};

Tensor3 slice(const Tensor3& x, int first, int count) {
  Tensor3 part = uninit(count, dim(x, 1), dim(x, 2));
  std::copy_n(row(x, first), part.size(), part.data());
  return part;
}

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
std::vector<int> key_heads(const Inputs& in) {
  const int Hk = dim(in.qkv.k, 1), Hv = dim(in.qkv.v, 1);
  std::vector<int> map(Hv);
  for (int h = 0; h < Hv; ++h) map[h] = h / (Hv / Hk);
  return map;
}

Tensor3 run(const Version& v, const Inputs& in, Tensor3& S, int chunk = 64) {
  return v.chunk_delta_rule(in.qkv, in.g, in.beta, key_heads(in), S, chunk);
}

}  // namespace

TEST_CASE("chunk_delta_rule: equal to the reference, from nothing and from a state") {
  const Goldens ops = load_goldens("ops.safetensors");
  const Inputs all = load_inputs(ops, "delta.");
  const Tensor3 o = ops.tensor<3>("delta.o");
  for (const Version& v : kVersions) {
    for (const int T : {5, 70, 130}) {
      Tensor3 S = zeros(4, 24, 40);
      const std::string name = v.name + " T " + std::to_string(T);
      check_close(name, run(v, slice(all, 0, T), S), slice(o, 0, T), kTolerance);
      check_close(name + " S", S, ops.tensor<3>("delta.S." + std::to_string(T)), kTolerance);
    }
    Tensor3 S = ops.tensor<3>("delta.S_before");
    check_close(v.name + " warm", run(v, slice(all, 0, 70), S), ops.tensor<3>("delta.warm.o"),
                kTolerance);
    check_close(v.name + " warm S", S, ops.tensor<3>("delta.warm.S"), kTolerance);
  }
}

TEST_CASE("chunk_delta_rule: equal to the reference inside a model") {
  for (const char* name : {"tiny", "grouped"}) {
    const Goldens trace = load_goldens(std::string(name) + ".safetensors");
    const std::string layer = "t70.layers.0.linear_attn.";
    const Tensor3 expected_S = trace.tensor<3>(layer + "S");
    for (const Version& v : kVersions) {
      Tensor3 S = zeros(dim(expected_S, 0), dim(expected_S, 1), dim(expected_S, 2));
      check_close(v.name + " in " + name, run(v, load_inputs(trace, layer), S),
                  trace.tensor<3>(layer + "o"), kTolerance);
      check_close(v.name + " S in " + name, S, expected_S, kTolerance);
    }
  }
}

TEST_CASE("chunk_delta_rule: the size of a chunk does not matter") {
  const Goldens ops = load_goldens("ops.safetensors");
  const Inputs all = load_inputs(ops, "delta.");
  for (const Version& v : kVersions) {
    for (const int chunk : {1, 2, 7, 63, 65, 130, 1000}) {
      Tensor3 S = zeros(4, 24, 40);
      const std::string name = v.name + " chunks of " + std::to_string(chunk);
      check_close(name, run(v, all, S, chunk), ops.tensor<3>("delta.o"), kTolerance);
      check_close(name + " S", S, ops.tensor<3>("delta.S.130"), kTolerance);
    }
  }
}

TEST_CASE("chunk_delta_rule: a sequence goes on from the state it left, wherever it was cut") {
  const Goldens ops = load_goldens("ops.safetensors");
  const Inputs all = load_inputs(ops, "delta.");
  const Tensor3 o = ops.tensor<3>("delta.o");
  for (const Version& v : kVersions) {
    for (const int cut : {1, 3, 64, 100, 129}) {
      Tensor3 S = zeros(4, 24, 40);
      check_close(v.name, run(v, slice(all, 0, cut), S), slice(o, 0, cut), kTolerance);
      check_close(v.name, run(v, slice(all, cut, 130 - cut), S), slice(o, cut, 130 - cut),
                  kTolerance);
      check_close(v.name + " S", S, ops.tensor<3>("delta.S.130"), kTolerance);
    }
  }
}

TEST_CASE("chunk_delta_rule: equal to a float64 recurrence where the numbers are hard") {
  const Goldens ops = load_goldens("ops.safetensors");
  for (const char* name : {"same_key", "two_keys", "fast_decay", "vanish", "no_decay"}) {
    const std::string prefix = std::string("stress.") + name + ".";
    const Inputs in = load_inputs(ops, prefix);
    for (const Version& v : kVersions) {
      // Where keys repeat and nothing fades, an error of the first row reaches all 64 of them.
      Tensor3 S = zeros(2, 6, 5);
      check_close(v.name + " " + name, run(v, in, S), ops.tensor<3>(prefix + "o"), 1e-5);
      check_close(v.name + " " + name + " S", S, ops.tensor<3>(prefix + "S"), 1e-5);
    }
  }
}

TEST_CASE("chunk_delta_rule: a token that forgets everything takes no digits from those after it") {
  // As a difference of sums over the chunk, the decay of later tokens would be rounded to
  // multiples of 8: beyond 2^26 floats stand 8 apart.
  const Goldens ops = load_goldens("ops.safetensors");
  Inputs in = load_inputs(ops, "delta.");
  for (int h = 0; h < 4; ++h) in.g(10, h) = -67108864.0f;
  Tensor3 S_expected = ops.tensor<3>("delta.S_before");
  const Tensor3 expected = plain::delta_rule(in.qkv, in.g, in.beta, key_heads(in), S_expected);
  for (const Version& v : kVersions) {
    Tensor3 S = ops.tensor<3>("delta.S_before");
    check_close(v.name, run(v, in, S), expected, kTolerance);
    check_close(v.name + " S", S, S_expected, kTolerance);
  }
}

TEST_CASE("chunk_delta_rule: key_head says whose q and k a value head takes") {
  const Inputs in = slice(load_inputs(load_goldens("ops.safetensors"), "delta."), 0, 70);
  const std::vector<int> map{1, 0, 0, 1};
  Tensor3 S_expected = zeros(4, 24, 40);
  const Tensor3 expected = plain::delta_rule(in.qkv, in.g, in.beta, map, S_expected);
  for (const Version& v : kVersions) {
    Tensor3 S = zeros(4, 24, 40);
    check_close(v.name, v.chunk_delta_rule(in.qkv, in.g, in.beta, map, S, 64), expected,
                kTolerance);
    check_close(v.name + " S", S, S_expected, kTolerance);
  }
}

TEST_CASE("chunk_delta_rule: a wrong shape or an empty chunk is named") {
  const Inputs in{{zeros(5, 1, 2), zeros(5, 1, 2), zeros(5, 2, 3)}, zeros(5, 2), zeros(5, 2)};
  for (const Version& v : kVersions) {
    Tensor3 S = zeros(2, 2, 3), turned = zeros(2, 3, 2);
    check_throws_with([&] { run(v, in, turned); },
                      "[chunk_delta_rule] S is [2, 3, 2], expected [2, 2, 3]");
    check_throws_with([&] { run(v, in, S, 0); }, "at least 1 token");
  }
}
