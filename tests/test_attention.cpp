#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "qwen/attention.h"
#include "qwen/linear.h"
#include "qwen/norm.h"
#include "qwen/rope.h"
#include "qwen/weights.h"
#include "tests/support.h"

using namespace qwen;

namespace {

Ops plain_ops() {
  Ops ops;
  ops.rms_norm = plain::rms_norm;
  ops.products = one_by_one(plain::linear);
  ops.rope = plain::rope;
  ops.attention = plain::attention;
  ops.sigmoid_gate = plain::sigmoid_gate;
  return ops;
}

Ops fast_ops() {
  Ops ops;
  ops.rms_norm = fast::rms_norm;
  ops.products = fast::products;
  ops.rope = fast::rope;
  ops.attention = fast::attention;
  ops.sigmoid_gate = fast::sigmoid_gate;
  return ops;
}

struct Version {
  std::string name;
  Ops ops;
};
const Version kVersions[] = {{"plain", plain_ops()}, {"fast", fast_ops()}};

Tensor1 norm_scale(const Checkpoint& checkpoint, const Config& config, const std::string& name) {
  if (!config.qk_norm) return {};
  Tensor1 scale = vector(checkpoint, name, {config.head_dim});
  if (config.norm_is_zero_centred) scale += 1.0f;
  return scale;
}

// The reference's runs of 13 and of 70 tokens.
std::string trace_of(int T) {
  return T == 13 ? "t13." : "t70.";
}

// A checkpoint's first layer of full attention, and what the reference saw pass through it.
struct Fixture {
  std::string name;
  Config config;
  Attention weights;
  Goldens trace;
  std::string layer;  // "layers.3."

  explicit Fixture(const std::string& checkpoint_name)
      : name(checkpoint_name),
        config(read_config("checkpoints/" + name)),
        trace(load_goldens(name + ".safetensors")) {
    int number = 0;
    while (config.layer_types[number] != LayerType::full_attention) ++number;
    layer = "layers." + std::to_string(number) + ".";
    const Checkpoint checkpoint = open_checkpoint("checkpoints/" + name);
    const std::string attn = "model." + layer + "self_attn.";
    const int H = config.hidden_size, D = config.head_dim;
    const int q_rows = config.num_attention_heads * D, kv_rows = config.num_key_value_heads * D;
    const int gates = config.attn_output_gate ? 2 : 1;
    weights = {matrix(checkpoint, attn + "q_proj.weight", gates * q_rows, H),
               matrix(checkpoint, attn + "k_proj.weight", kv_rows, H),
               matrix(checkpoint, attn + "v_proj.weight", kv_rows, H),
               matrix(checkpoint, attn + "o_proj.weight", H, q_rows),
               norm_scale(checkpoint, config, attn + "q_norm.weight"),
               norm_scale(checkpoint, config, attn + "k_norm.weight")};
  }

  Tensor2 input(int T) const {
    return trace.tensor<2>(trace_of(T) + layer + "input_layernorm.out");
  }
  Tensor2 output(int T) const { return trace.tensor<2>(trace_of(T) + layer + "self_attn.out"); }
};

// The next rows of one sequence.
Tensor2 run(const Version& version, const Fixture& at, const Tensor2& x, KVCache& cache) {
  const std::vector<Share<KVCache>> alone{{&cache, dim(x, 0)}};
  return attention_forward(version.ops, at.config, at.weights, x, alone);
}

}  // namespace

TEST_CASE("attention: a single key is all there is to read") {
  const Tensor3 q{{{3, -1}}}, keys{{{1, 5}}}, values{{{7, 8}}};
  for (const Version& v : kVersions) {
    check_same_bits(v.name, v.ops.attention(q, keys, values, 0), Tensor2{{7, 8}});
  }
}

TEST_CASE("attention: among equal keys a query reads the mean of the values up to its own") {
  const Tensor3 q{{{3, -1}}, {{2, 4}}, {{0, 1}}}, keys{{{1, 5}}, {{1, 5}}, {{1, 5}}};
  const Tensor3 values{{{1, 0}}, {{2, 0}}, {{6, -3}}};
  const Tensor2 expected{{1, 0}, {1.5, 0}, {3, -1}};
  for (const Version& v : kVersions) {
    check_close(v.name, v.ops.attention(q, keys, values, 0), expected, 2e-7);
  }
}

TEST_CASE("attention: the weights are the softmax of q k / sqrt(D)") {
  const Tensor3 q{{{2, 0, 0, 0}}}, keys{{{1, 9, 9, 9}}, {{0, 9, 9, 9}}};
  const Tensor3 values{{{1, 0, 0, 0}}, {{0, 1, 0, 0}}};
  const float e = std::exp(1.0f);  // the scores are 2 / sqrt(4) and 0
  const Tensor2 expected{{e / (e + 1), 1 / (e + 1), 0, 0}};
  for (const Version& v : kVersions) {
    check_close(v.name, v.ops.attention(q, keys, values, 1), expected, 2e-7);
  }
}

TEST_CASE("attention: consecutive query heads share a key/value head") {
  const Tensor3 q = zeros(1, 6, 1), keys = zeros(1, 2, 1), values{{{5}, {7}}};
  const Tensor2 expected{{5, 5, 5, 7, 7, 7}};
  for (const Version& v : kVersions) {
    check_same_bits(v.name, v.ops.attention(q, keys, values, 0), expected);
  }
}

TEST_CASE("attention: scores of thousands neither overflow nor lose the order") {
  const Tensor3 q{{{100}}}, keys{{{-90}}, {{89}}, {{90}}}, values{{{1}}, {{2}}, {{3}}};
  for (const Version& v : kVersions) {
    check_same_bits(v.name, v.ops.attention(q, keys, values, 2), Tensor2{{3}});
  }
}

TEST_CASE("attention: equal to the reference, for one query and many") {
  const Goldens ops = load_goldens("ops.safetensors");
  const Tensor3 q = ops.tensor<3>("attention.q");
  const Tensor3 keys = ops.tensor<3>("attention.keys"), values = ops.tensor<3>("attention.values");
  for (const auto& [T, position] : {std::pair{5, 0}, {1, 149}, {70, 67}}) {
    Tensor3 queries = uninit(T, dim(q, 1), dim(q, 2));
    std::copy_n(q.data(), queries.size(), queries.data());
    const std::string name =
        "attention." + std::to_string(T) + "_at_" + std::to_string(position) + ".y";
    for (const Version& v : kVersions) {
      // The scores of head 0 reach 60, and a score off by 6e-8 of itself changes its weight by
      // 4e-6 of itself.
      check_close(v.name + " " + name, v.ops.attention(queries, keys, values, position),
                  ops.tensor<2>(name), 5e-6);
    }
  }
}

TEST_CASE("attention: a query has the same bits alone and among others") {
  const Goldens ops = load_goldens("ops.safetensors");
  const Tensor3 q = ops.tensor<3>("attention.q");
  const Tensor3 keys = ops.tensor<3>("attention.keys"), values = ops.tensor<3>("attention.values");
  for (const Version& v : kVersions) {
    const Tensor2 all = v.ops.attention(q, keys, values, 67);
    for (int t = 0; t < dim(q, 0); ++t) {
      Tensor3 one = uninit(1, dim(q, 1), dim(q, 2));
      std::copy_n(row(q, t), one.size(), one.data());
      check_same_bits(v.name, v.ops.attention(one, keys, values, 67 + t), slice(all, t, 1));
    }
  }
}

TEST_CASE("attention: among others or alone, with a long past or none, the bits are the same") {
  // Heads of 64 are read in place, others are copied; a few queries with a long past share out its
  // blocks, many share out themselves; the last block is cut off in every place of a vector.
  for (const int D : {64, 36}) {
    const int T = 290, Hq = 6, Hkv = 2;
    Tensor3 q = uninit(T, Hq, D), keys = uninit(T, Hkv, D), values = uninit(T, Hkv, D);
    int i = 0;
    for (Tensor3* x : {&q, &keys, &values}) {
      for (float& element : *x) element = std::sin(static_cast<float>(++i) * 1.7f);
    }
    const Tensor2 all = fast::attention(q, keys, values, 0);
    check_close("fast", all, plain::attention(q, keys, values, 0), 5e-6);
    for (const int rows : {1, 2, 7, 40}) {
      for (int t = 0; t + rows <= T; t += 13) {
        Tensor3 some = uninit(rows, Hq, D);
        std::copy_n(row(q, t), some.size(), some.data());
        check_same_bits("fast", fast::attention(some, keys, values, t), slice(all, t, rows));
      }
    }
  }
}

TEST_CASE("attention: what stands behind a query's own key is not read, not even a NaN") {
  const Goldens ops = load_goldens("ops.safetensors");
  const Tensor3 q = ops.tensor<3>("attention.q");
  const Tensor3 keys = ops.tensor<3>("attention.keys"), values = ops.tensor<3>("attention.values");
  Tensor3 stale_keys = keys, stale_values = values;
  for (int s = 67 + 70; s < dim(keys, 0); ++s) {
    std::fill_n(row(stale_keys, s), 2 * 20, NAN);
    std::fill_n(row(stale_values, s), 2 * 20, NAN);
  }
  for (const Version& v : kVersions) {
    check_same_bits(v.name, v.ops.attention(q, stale_keys, stale_values, 67),
                    v.ops.attention(q, keys, values, 67));
    // A NaN that some queries of the call must see, and the ones before it must not.
    stale_values(100, 0, 3) = NAN;
    const Tensor2 y = v.ops.attention(q, stale_keys, stale_values, 67);
    CHECK(std::isfinite(y(100 - 67 - 1, 3)));
    CHECK(std::isnan(y(100 - 67, 3)));
    stale_values(100, 0, 3) = values(100, 0, 3);
  }
}

TEST_CASE("sigmoid_gate: equal to the reference, also where exp overflows or vanishes") {
  const Goldens ops = load_goldens("ops.safetensors");
  const Tensor2 half{{5, -6}}, gate = zeros(1, 2), expected{{2.5, -3}};
  for (const Version& v : kVersions) {
    check_same_bits(v.name, v.ops.sigmoid_gate(half, gate), expected);
    // Three roundings and an exp of 2 units in the last place, 6e-8 each.
    check_close(
        v.name,
        v.ops.sigmoid_gate(ops.tensor<2>("sigmoid_gate.x"), ops.tensor<2>("sigmoid_gate.gate")),
        ops.tensor<2>("sigmoid_gate.y"), 4e-7);
    check_throws_with([&] { v.ops.sigmoid_gate(half, zeros(1, 3)); },
                      "[sigmoid_gate] gate is [1, 3], expected [1, 2]");
  }
}

TEST_CASE("attention_forward: equal to the reference in every family") {
  for (const char* name : {"tiny", "grouped", "qwen3", "llama"}) {
    const Fixture at(name);
    for (const int T : {13, 70}) {
      for (const Version& v : kVersions) {
        KVCache cache;
        // Sums of up to 120 terms, then a norm, the softmax, and once more such a sum: each is off
        // by a few times 6e-8.
        check_close(v.name + " in " + name, run(v, at, at.input(T), cache), at.output(T), 1e-6);
        CHECK(cache.length == T);
      }
    }
  }
}

TEST_CASE("attention_forward: the cache holds rotated keys and values") {
  const Fixture at("tiny");
  for (const Version& v : kVersions) {
    KVCache cache;
    run(v, at, at.input(70), cache);
    Tensor3 keys = uninit(70, 2, 20), values = uninit(70, 2, 20);
    std::copy_n(cache.keys.data(), keys.size(), keys.data());
    std::copy_n(cache.values.data(), values.size(), values.data());
    const std::string attn = "t70." + at.layer + "self_attn.";
    check_close(v.name + " keys", keys, at.trace.tensor<3>(attn + "k_rotated"), 1e-6);
    check_close(v.name + " values", values, at.trace.tensor<3>(attn + "v"), 1e-6);
  }
}

TEST_CASE("attention_forward: in any pieces the bits are those of one go") {
  const Fixture at("tiny");
  const Tensor2 x = at.input(70);
  for (const Version& v : kVersions) {
    KVCache whole;
    const Tensor2 expected = run(v, at, x, whole);
    for (const std::vector<int>& pieces :
         {std::vector<int>{1, 69}, {69, 1}, {64, 6}, {2, 3, 1, 60, 4}, std::vector<int>(70, 1)}) {
      KVCache cache;
      int first = 0;
      for (const int rows : pieces) {
        check_same_bits(v.name, run(v, at, slice(x, first, rows), cache),
                        slice(expected, first, rows));
        first += rows;
      }
    }
  }
}

TEST_CASE("attention_forward: packed sequences have the bits of each alone") {
  const Fixture at("grouped");
  const Tensor2 x = at.input(13);
  for (const Version& v : kVersions) {
    KVCache a, b, a_alone, b_alone;
    run(v, at, slice(x, 0, 4), a);
    run(v, at, slice(x, 0, 4), a_alone);
    const std::vector<Share<KVCache>> shares{{&a, 1}, {&b, 6}};
    const Tensor2 y = attention_forward(v.ops, at.config, at.weights, slice(x, 4, 7), shares);
    check_same_bits(v.name, slice(y, 0, 1), run(v, at, slice(x, 4, 1), a_alone));
    check_same_bits(v.name, slice(y, 1, 6), run(v, at, slice(x, 5, 6), b_alone));
    CHECK(a.length == 5);
    CHECK(b.length == 6);
  }
}

TEST_CASE("truncate: the sequence goes on as if the rest had never been") {
  const Fixture at("tiny");
  const Tensor2 x = at.input(70);
  for (const Version& v : kVersions) {
    KVCache cache, fresh;
    run(v, at, x, cache);
    truncate(cache, 13);
    for (int s = 13; s < dim(cache.keys, 0); ++s) {
      std::fill_n(row(cache.keys, s), 2 * 20, NAN);
      std::fill_n(row(cache.values, s), 2 * 20, NAN);
    }
    run(v, at, slice(x, 0, 13), fresh);
    check_same_bits(v.name, run(v, at, slice(x, 20, 3), cache), run(v, at, slice(x, 20, 3), fresh));
  }
}

TEST_CASE("truncate: a length that is not there is refused") {
  KVCache cache;
  cache.length = 5;
  check_throws_with([&] { truncate(cache, 6); }, "[truncate] length 6 is not within the 5 tokens");
  check_throws_with([&] { truncate(cache, -1); }, "[truncate] length -1");
  CHECK(cache.length == 5);
}
