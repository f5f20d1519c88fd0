#include "qwen/norm.h"

#include <cmath>

#include "qwen/shape.h"

namespace qwen::plain {

Tensor2 rms_norm(const Tensor2& x, const Tensor1& weight, float eps) {
  const int T = dim(x, 0), H = dim(x, 1);
  expect_shape("[rms_norm] weight", weight, {H});
  Tensor2 y = uninit(T, H);
  for (int t = 0; t < T; ++t) {
    float sum_of_squares = 0;
    for (int i = 0; i < H; ++i) sum_of_squares += x(t, i) * x(t, i);
    const float rms = std::sqrt(sum_of_squares / H + eps);
    for (int i = 0; i < H; ++i) y(t, i) = x(t, i) / rms * weight(i);
  }
  return y;
}

Tensor2 gated_rms_norm(const Tensor2& x, const Tensor2& z, const Tensor1& weight, float eps) {
  const int T = dim(x, 0), D = dim(x, 1);
  expect_shape("[gated_rms_norm] z", z, {T, D});
  Tensor2 y = rms_norm(x, weight, eps);
  for (int t = 0; t < T; ++t) {
    // The gate comes after the normalisation: z does not count towards the mean.
    for (int i = 0; i < D; ++i) y(t, i) *= z(t, i) / (1 + std::exp(-z(t, i)));
  }
  return y;
}

}  // namespace qwen::plain
