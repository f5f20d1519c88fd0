#include "qwen/rope.h"
#include "qwen/simd.h"

namespace qwen {

void check_rope(const Tensor3& x, const Tensor2& cos, const Tensor2& sin);  // rope.cpp

namespace fast {
namespace {

using simd::kLanes;
using simd::Vec;

// a, b [n] are the two halves of the rotated part of a head.
void turn(float* a, float* b, const float* cos, const float* sin, int n) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec x = simd::load(a + i), y = simd::load(b + i);
    const Vec c = simd::load(cos + i), s = simd::load(sin + i);
    simd::store(a + i, x * c - y * s);
    simd::store(b + i, y * c + x * s);
  }
  for (; i < n; ++i) {
    const float x = a[i], y = b[i];
    a[i] = x * cos[i] - y * sin[i];
    b[i] = y * cos[i] + x * sin[i];
  }
}

}  // namespace

void rope(Tensor3& x, const Tensor2& cos, const Tensor2& sin) {
  check_rope(x, cos, sin);
  const int T = dim(x, 0), heads = dim(x, 1), D = dim(x, 2), half = dim(cos, 1);
  for (int t = 0; t < T; ++t) {
    for (int h = 0; h < heads; ++h) {
      float* head = row(x, t) + D * h;
      turn(head, head + half, row(cos, t), row(sin, t), half);
    }
  }
}

}  // namespace fast
}  // namespace qwen
