#include "qwen/mlp.h"

#include <cmath>

#include "qwen/shape.h"

namespace qwen {

Tensor2 mlp_forward(const Ops& ops, const Mlp& mlp, const Tensor2& x) {
  const auto [gate, up] = ops.linear(x, mlp.gate_proj, mlp.up_proj);  // [T, intermediate_size]
  return ops.linear(ops.swiglu(gate, up), mlp.down_proj);
}

namespace plain {

Tensor2 swiglu(const Tensor2& gate, const Tensor2& up) {
  const int T = dim(gate, 0), I = dim(gate, 1);
  expect_shape("[swiglu] up", up, {T, I});
  Tensor2 y = uninit(T, I);
  for (int t = 0; t < T; ++t) {
    for (int i = 0; i < I; ++i) {
      const float silu = gate(t, i) / (1 + std::exp(-gate(t, i)));
      y(t, i) = silu * up(t, i);
    }
  }
  return y;
}

}  // namespace plain
}  // namespace qwen
