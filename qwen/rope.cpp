#include "qwen/rope.h"

#include <cmath>
#include <stdexcept>

#include "qwen/shape.h"

namespace qwen {

Rotation rotation(const Config& config, int position, int T) {
  const int R = rotary_dim(config);
  Rotation turn{uninit(T, R / 2), uninit(T, R / 2)};
  for (int i = 0; i < R / 2; ++i) {
    // Power, frequency and angle are rounded to float32, as the reference rounds them: far into a
    // context that moves the angle more than any other rounding here. The functions are those for
    // double, on which C libraries agree once they are rounded; their float versions differ.
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(R);
    const double theta = static_cast<float>(config.rope_theta);
    const float frequency = 1.0f / static_cast<float>(std::pow(theta, double{exponent}));
    for (int t = 0; t < T; ++t) {
      const double angle = static_cast<float>(position + t) * frequency;
      turn.cos(t, i) = static_cast<float>(std::cos(angle));
      turn.sin(t, i) = static_cast<float>(std::sin(angle));
    }
  }
  return turn;
}

void check_rope(const Tensor3& x, const Tensor2& cos, const Tensor2& sin) {
  const int T = dim(x, 0), D = dim(x, 2), half = dim(cos, 1);
  if (2 * half > D) {
    throw std::invalid_argument("[rope] " + std::to_string(half) +
                                " pairs do not fit in heads of " + std::to_string(D) +
                                " dimensions");
  }
  expect_shape("[rope] cos", cos, {T, half});
  expect_shape("[rope] sin", sin, {T, half});
}

namespace plain {

void rope(Tensor3& x, const Tensor2& cos, const Tensor2& sin) {
  check_rope(x, cos, sin);
  const int T = dim(x, 0), heads = dim(x, 1), half = dim(cos, 1);
  for (int t = 0; t < T; ++t) {
    for (int h = 0; h < heads; ++h) {
      for (int i = 0; i < half; ++i) {
        const float a = x(t, h, i), b = x(t, h, i + half);
        x(t, h, i) = a * cos(t, i) - b * sin(t, i);
        x(t, h, i + half) = b * cos(t, i) + a * sin(t, i);
      }
    }
  }
}

}  // namespace plain
}  // namespace qwen
