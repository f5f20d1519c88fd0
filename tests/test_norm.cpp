#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

#include "qwen/norm.h"
#include "qwen/segment.h"
#include "qwen/simd.h"
#include "tests/support.h"

using namespace qwen;

namespace {

struct Version {
  std::string name;
  Tensor2 (*rms_norm)(const Tensor2&, const Tensor1&, float);
  Tensor2 (*gated_rms_norm)(const Tensor2&, const Tensor2&, const Tensor1&, float);
};
const Version kVersions[] = {{"plain", plain::rms_norm, plain::gated_rms_norm},
                             {"fast", fast::rms_norm, fast::gated_rms_norm}};

// A float32 operation is off by at most 6e-8 of its result. Here: a sum of up to 72 squares, whose
// errors mostly cancel and which the root halves, then four more operations.
constexpr double kTolerance = 5e-7;

Tensor1 one_plus(Tensor1 weight) {
  for (float& w : weight) w += 1;
  return weight;
}

}  // namespace

TEST_CASE("rms_norm: a row of 3 and 4 has the mean square 12.5") {
  const Tensor2 x{{3, 4}, {-30, 40}, {0, 0}};
  const Tensor1 weight{2, 10};
  const float rms = std::sqrt(12.5f);
  const Tensor2 expected{{6 / rms, 40 / rms}, {-6 / rms, 40 / rms}, {0, 0}};
  for (const Version& v : kVersions) {
    check_close(v.name, v.rms_norm(x, weight, 1e-12f), expected, 2e-7);
  }
}

TEST_CASE("rms_norm: eps is added to the mean square, inside the root") {
  const Tensor2 x{{1e-3f, -1e-3f}};
  const Tensor1 weight{1, 1};
  const float half = std::sqrt(0.5f);  // the mean square is 1e-6, and so is eps
  for (const Version& v : kVersions) {
    check_close(v.name, v.rms_norm(x, weight, 1e-6f), Tensor2{{half, -half}}, 2e-7);
  }
}

TEST_CASE("exp: NaN stays NaN, whatever its bits; beyond its bounds it is 0 and infinity") {
  for (const std::uint32_t bits : {0x7FC00000u, 0x7FC00002u, 0xFFFFFFFFu, 0x7F800001u}) {
    CHECK(std::isnan(simd::exp(std::bit_cast<float>(bits))));
  }
  CHECK(simd::exp(0.0f) == 1);
  CHECK(simd::exp(-INFINITY) == 0);
  CHECK(simd::exp(INFINITY) == INFINITY);
}

TEST_CASE("gated_rms_norm: z is a gate after the normalisation, z / (1 + exp(-z))") {
  const Tensor2 x{{2, 2, -2}}, z{{0, 100, 1}};
  const Tensor1 weight{1, 3, 1};
  const Tensor2 expected{{0, 300, -1 / (1 + std::exp(-1.0f))}};
  for (const Version& v : kVersions) {
    check_close(v.name, v.gated_rms_norm(x, z, weight, 1e-12f), expected, 2e-7);
  }
}

TEST_CASE("rms_norm and gated_rms_norm: equal to the reference on rows large, tiny and zero") {
  const Goldens ops = load_goldens("ops.safetensors");
  const Tensor1 scale = one_plus(ops.tensor<1>("rms_norm.weight"));
  for (const Version& v : kVersions) {
    check_close(v.name + " rms_norm", v.rms_norm(ops.tensor<2>("rms_norm.x"), scale, 1e-6f),
                ops.tensor<2>("rms_norm.y"), kTolerance);
    check_close(
        v.name + " gated_rms_norm",
        v.gated_rms_norm(ops.tensor<2>("gated_rms_norm.x"), ops.tensor<2>("gated_rms_norm.z"),
                         ops.tensor<1>("gated_rms_norm.weight"), 1e-6f),
        ops.tensor<2>("gated_rms_norm.y"), kTolerance);
  }
}

TEST_CASE("rms_norm: the scale is 1 + weight in Qwen3.5, weight in Qwen3 and Llama") {
  struct Family {
    std::string name;
    bool zero_centred;
    float eps;
  };
  for (const Family& family : {Family{"tiny", true, 1e-6f}, Family{"qwen3", false, 1e-6f},
                               Family{"llama", false, 1e-5f}}) {
    const Goldens trace = load_goldens(family.name + ".safetensors");
    const Goldens checkpoint = load_goldens("checkpoints/" + family.name + "/model.safetensors");
    const Tensor1 weight = checkpoint.tensor<1>("model.layers.0.input_layernorm.weight");
    const Tensor1 scale = family.zero_centred ? one_plus(weight) : weight;
    for (const Version& v : kVersions) {
      check_close(v.name + " in " + family.name,
                  v.rms_norm(trace.tensor<2>("t13.layers.0.in"), scale, family.eps),
                  trace.tensor<2>("t13.layers.0.input_layernorm.out"), kTolerance);
    }
  }
}

TEST_CASE("gated_rms_norm: equal to the reference inside DeltaNet, head by head") {
  const Goldens trace = load_goldens("grouped.safetensors");
  const Goldens checkpoint = load_goldens("checkpoints/grouped/model.safetensors");
  const int T = 13, Hv = 6, Dv = 17;
  const Tensor2 o = reshape(trace.tensor<3>("t13.layers.0.linear_attn.o"), T * Hv, Dv);
  const Tensor2 z = reshape(trace.tensor<2>("t13.layers.0.linear_attn.in_proj_z.out"), T * Hv, Dv);
  const Tensor1 weight = checkpoint.tensor<1>("model.layers.0.linear_attn.norm.weight");
  for (const Version& v : kVersions) {
    check_close(v.name, reshape(v.gated_rms_norm(o, z, weight, 1e-6f), T, Hv * Dv),
                trace.tensor<2>("t13.layers.0.linear_attn.out_proj.in"), kTolerance);
  }
}

TEST_CASE("rms_norm and gated_rms_norm: a row has the same bits alone and among others") {
  const Goldens ops = load_goldens("ops.safetensors");
  const Tensor2 x = ops.tensor<2>("gated_rms_norm.x"), z = ops.tensor<2>("gated_rms_norm.z");
  const Tensor1 weight = ops.tensor<1>("gated_rms_norm.weight");
  for (const Version& v : kVersions) {
    const Tensor2 all = v.rms_norm(x, weight, 1e-6f);
    const Tensor2 all_gated = v.gated_rms_norm(x, z, weight, 1e-6f);
    for (int t = 0; t < dim(x, 0); ++t) {
      check_same_bits(v.name, v.rms_norm(slice(x, t, 1), weight, 1e-6f), slice(all, t, 1));
      check_same_bits(v.name + " gated",
                      v.gated_rms_norm(slice(x, t, 1), slice(z, t, 1), weight, 1e-6f),
                      slice(all_gated, t, 1));
    }
  }
}

TEST_CASE("rms_norm and gated_rms_norm: a wrong shape is named") {
  const Tensor2 x = zeros(2, 5), z = zeros(2, 4);
  for (const Version& v : kVersions) {
    check_throws_with([&] { v.rms_norm(x, zeros(7), 1e-6f); },
                      "[rms_norm] weight is [7], expected [5]");
    check_throws_with([&] { v.gated_rms_norm(x, z, zeros(5), 1e-6f); },
                      "[gated_rms_norm] z is [2, 4], expected [2, 5]");
  }
}
