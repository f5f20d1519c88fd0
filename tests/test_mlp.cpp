#include <cmath>
#include <string>

#include "qwen/linear.h"
#include "qwen/mlp.h"
#include "qwen/segment.h"
#include "tests/support.h"

using namespace qwen;

namespace {

Ops plain_ops() {
  Ops ops;
  ops.products = one_by_one(plain::linear);
  ops.swiglu = plain::swiglu;
  return ops;
}

Ops fast_ops() {
  Ops ops;
  ops.products = fast::products;
  ops.swiglu = fast::swiglu;
  return ops;
}

struct Version {
  std::string name;
  Ops ops;
};
const Version kVersions[] = {{"plain", plain_ops()}, {"fast", fast_ops()}};

// The MLP of layer 0 of a checkpoint; I is its intermediate_size, H its hidden_size.
Mlp load_mlp(const Checkpoint& checkpoint, int I, int H) {
  const std::string mlp = "model.layers.0.mlp.";
  return {matrix(checkpoint, mlp + "gate_proj.weight", I, H),
          matrix(checkpoint, mlp + "up_proj.weight", I, H),
          matrix(checkpoint, mlp + "down_proj.weight", H, I)};
}

}  // namespace

TEST_CASE("swiglu: gate / (1 + exp(-gate)) * up") {
  const Tensor2 gate{{0, 1, -1, 30}}, up{{5, 2, 2, -1}};
  const float e = std::exp(1.0f);
  const Tensor2 expected{{0, 2 * e / (e + 1), -2 / (e + 1), -30}};
  for (const Version& v : kVersions) check_close(v.name, v.ops.swiglu(gate, up), expected, 2e-7);
}

TEST_CASE("swiglu: equal to the reference, also where exp overflows or vanishes") {
  const Goldens ops = load_goldens("ops.safetensors");
  for (const Version& v : kVersions) {
    // Three roundings and an exp of 2 units in the last place, 6e-8 each.
    check_close(v.name, v.ops.swiglu(ops.tensor<2>("swiglu.gate"), ops.tensor<2>("swiglu.up")),
                ops.tensor<2>("swiglu.y"), 4e-7);
  }
}

TEST_CASE("swiglu: an element has the same bits wherever it stands in a row") {
  const Tensor2 gate = load_goldens("ops.safetensors").tensor<2>("swiglu.gate");
  const int N = dim(gate, 1);
  for (const Version& v : kVersions) {
    const Tensor2 all = v.ops.swiglu(gate, gate);
    for (int i = 0; i < N; ++i) {
      const Tensor2 alone{{gate(1, i)}}, expected{{all(1, i)}};
      check_same_bits(v.name, v.ops.swiglu(alone, alone), expected);
    }
  }
}

TEST_CASE("swiglu: a wrong shape is named") {
  for (const Version& v : kVersions) {
    check_throws_with([&] { v.ops.swiglu(zeros(2, 5), zeros(2, 6)); },
                      "[swiglu] up is [2, 6], expected [2, 5]");
  }
}

TEST_CASE("mlp_forward: equal to the reference, step by step and as a whole") {
  struct Family {
    std::string name;
    int I, H;
  };
  for (const Family& family : {Family{"tiny", 109, 52}, Family{"grouped", 91, 66},
                               Family{"qwen3", 99, 58}, Family{"llama", 101, 72}}) {
    const Goldens trace = load_goldens(family.name + ".safetensors");
    const Mlp mlp = load_mlp(open_checkpoint("checkpoints/" + family.name), family.I, family.H);
    const Tensor2 x = trace.tensor<2>("t13.layers.0.post_attention_layernorm.out");
    for (const Version& v : kVersions) {
      const std::string name = v.name + " in " + family.name;
      // Each sum has up to 109 terms; in float32 such a sum is off by some 1e-7 of its largest
      // partial sum, here and in the three products one behind the other.
      const Tensor2 gate = v.ops.linear(x, mlp.gate_proj);
      check_close(name, gate, trace.tensor<2>("t13.layers.0.mlp.gate_proj.out"), 1e-6);
      const Tensor2 up = v.ops.linear(x, mlp.up_proj);
      check_close(name, up, trace.tensor<2>("t13.layers.0.mlp.up_proj.out"), 1e-6);
      check_close(name, v.ops.swiglu(gate, up), trace.tensor<2>("t13.layers.0.mlp.down_proj.in"),
                  1e-6);
      check_close(name, mlp_forward(v.ops, mlp, x), trace.tensor<2>("t13.layers.0.mlp.out"), 1e-6);
    }
  }
}

TEST_CASE("mlp_forward: one token at a time has the same bits as all at once") {
  const Tensor2 x =
      load_goldens("tiny.safetensors").tensor<2>("t13.layers.0.post_attention_layernorm.out");
  const Mlp mlp = load_mlp(open_checkpoint("checkpoints/tiny"), 109, 52);
  for (const Version& v : kVersions) {
    const Tensor2 all = mlp_forward(v.ops, mlp, x);
    for (int t = 0; t < dim(x, 0); ++t) {
      check_same_bits(v.name, mlp_forward(v.ops, mlp, slice(x, t, 1)), slice(all, t, 1));
    }
  }
}
