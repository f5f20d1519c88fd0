// Bugs in the norms and in the MLP.
#include <cmath>

#include "qwen/attention.h"
#include "qwen/mlp.h"
#include "qwen/norm.h"
#include "tests/planted.h"

namespace qwen {
namespace {

Tensor2 norm_with_scale_off_by(float amount, const Tensor2& x, Tensor1 weight, float eps) {
  weight += amount;
  return plain::rms_norm(x, weight, eps);
}

Tensor2 norm_with_eps_outside_the_root(const Tensor2& x, const Tensor1& weight, float eps) {
  Tensor2 y = plain::rms_norm(x, weight, 0);
  for (int t = 0; t < dim(x, 0); ++t) {
    float squares = 0;
    for (int i = 0; i < dim(x, 1); ++i) squares += x(t, i) * x(t, i);
    const float rms = std::sqrt(squares / dim(x, 1));
    for (int i = 0; i < dim(x, 1); ++i) y(t, i) = x(t, i) / (rms + eps) * weight(i);
  }
  return y;
}

Tensor2 layer_norm(Tensor2 x, const Tensor1& weight, float eps) {
  const int H = dim(x, 1);
  for (int t = 0; t < dim(x, 0); ++t) {
    float mean = 0;
    for (int i = 0; i < H; ++i) mean += x(t, i) / H;
    for (int i = 0; i < H; ++i) x(t, i) -= mean;
  }
  return plain::rms_norm(x, weight, eps);
}

Tensor2 gate_before_the_norm(const Tensor2& x, const Tensor2& z, const Tensor1& weight, float eps) {
  return plain::rms_norm(plain::swiglu(z, x), weight, eps);
}

Tensor2 gate_without_silu(const Tensor2& x, const Tensor2& z, const Tensor1& weight, float eps) {
  return plain::sigmoid_gate(plain::rms_norm(x, weight, eps), z);
}

// Scales are 1 + weight by the time an operator sees them.
Plant plant_scale_off_by(float amount) {
  return plant(&Ops::rms_norm, [=](const Tensor2& x, const Tensor1& weight, float eps) {
    return norm_with_scale_off_by(amount, x, weight, eps);
  });
}

}  // namespace

std::vector<PlantedBug> norm_bugs() {
  return {
      {"a norm scales by weight, not by 1 + weight", "rms_norm", plant_scale_off_by(-1)},
      {"a norm adds the 1 to its weight twice", "rms_norm", plant_scale_off_by(1)},
      {"a norm adds eps outside the root", "rms_norm",
       plant(&Ops::rms_norm, norm_with_eps_outside_the_root)},
      {"a norm subtracts the mean first", "rms_norm", plant(&Ops::rms_norm, layer_norm)},
      {"the gated norm gates before it normalises", "gated_rms_norm",
       plant(&Ops::gated_rms_norm, gate_before_the_norm)},
      {"the gated norm's gate is sigmoid, not silu", "gated_rms_norm",
       plant(&Ops::gated_rms_norm, gate_without_silu)},
      {"the MLP applies silu to up, not to gate", "swiglu",
       plant(&Ops::swiglu,
             [](const Tensor2& gate, const Tensor2& up) { return plain::swiglu(up, gate); })},
  };
}

}  // namespace qwen
