// The feed-forward half of a layer: down(silu(gate(x)) * up(x)), "SwiGLU".
#pragma once

#include "qwen/ops.h"

namespace qwen {

struct Mlp {
  Weight gate_proj, up_proj;  // [intermediate_size, hidden_size]
  Weight down_proj;           // [hidden_size, intermediate_size]
};

// x [T, hidden_size] -> [T, hidden_size]
Tensor2 mlp_forward(const Ops& ops, const Mlp& mlp, const Tensor2& x);

namespace plain {
// gate, up [T, I] -> [T, I]: silu(gate) * up, silu(x) = x / (1 + exp(-x)).
Tensor2 swiglu(const Tensor2& gate, const Tensor2& up);
}  // namespace plain

namespace fast {
Tensor2 swiglu(const Tensor2& gate, const Tensor2& up);
}  // namespace fast

}  // namespace qwen
