#include <cmath>

#include "qwen/norm.h"
#include "qwen/shape.h"
#include "qwen/simd.h"

namespace qwen::fast {
namespace {

using simd::Vec;

// One over the root of the mean square: a division and a root that round correctly. The processor's
// quick estimate of 1 / sqrt would differ between makers.
float one_over_rms(const float* x, int n, float eps) {
  return 1 / std::sqrt(simd::dot(x, x, n) / static_cast<float>(n) + eps);
}

}  // namespace

Tensor2 rms_norm(const Tensor2& x, const Tensor1& weight, float eps) {
  const int T = dim(x, 0), H = dim(x, 1);
  expect_shape("[rms_norm] weight", weight, {H});
  Tensor2 y = uninit(T, H);
  for (int t = 0; t < T; ++t) {
    const Vec scale = simd::broadcast(one_over_rms(row(x, t), H, eps));
    const auto scaled = [&](Vec v, Vec w) { return v * scale * w; };
    simd::map(H, row(y, t), scaled, row(x, t), weight.data());
  }
  return y;
}

Tensor2 gated_rms_norm(const Tensor2& x, const Tensor2& z, const Tensor1& weight, float eps) {
  const int T = dim(x, 0), D = dim(x, 1);
  expect_shape("[gated_rms_norm] weight", weight, {D});
  expect_shape("[gated_rms_norm] z", z, {T, D});
  Tensor2 y = uninit(T, D);
  for (int t = 0; t < T; ++t) {
    const Vec scale = simd::broadcast(one_over_rms(row(x, t), D, eps));
    const auto gated = [&](Vec v, Vec w, Vec gate) { return v * scale * w * simd::silu(gate); };
    simd::map(D, row(y, t), gated, row(x, t), weight.data(), row(z, t));
  }
  return y;
}

}  // namespace qwen::fast
