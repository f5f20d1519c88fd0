#include <algorithm>

#include "qwen/mlp.h"
#include "qwen/parallel.h"
#include "qwen/shape.h"
#include "qwen/simd.h"

namespace qwen::fast {

using simd::Vec;

// Elements worth a thread of their own: some 10 microseconds, ten times what handing them over
// costs.
constexpr int kPiece = 16384;

Tensor2 swiglu(const Tensor2& gate, const Tensor2& up) {
  const int T = dim(gate, 0), I = dim(gate, 1);
  expect_shape("[swiglu] up", up, {T, I});
  Tensor2 y = uninit(T, I);
  parallel_for(T, std::max(1, kPiece / I), [&](int begin, int end) {
    for (int t = begin; t < end; ++t) {
      const auto gated = [](Vec g, Vec u) { return simd::silu(g) * u; };
      simd::map(I, row(y, t), gated, row(gate, t), row(up, t));
    }
  });
  return y;
}

}  // namespace qwen::fast
