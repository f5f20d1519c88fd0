// Gated DeltaNet: attention whose memory has a fixed size.
//
//   x ─ in_proj_qkv ─ conv_qkv ─ q, k, v ─┐
//   x ─ in_proj_a ─ g (decay) ────────────┤
//   x ─ in_proj_b ─ beta (write) ── delta_rule ─ gated norm ─ out_proj
//   x ─ in_proj_z ─ z ──────────────────────────────┘
//
// S [Dk, Dv] per head is an associative memory: S^T k is what it holds under the key k.
#pragma once

#include <vector>

#include "qwen/config.h"
#include "qwen/ops.h"
#include "qwen/segment.h"

namespace qwen {

struct DeltaNet {
  Weight in_proj_qkv;           // [2 Hk Dk + Hv Dv, hidden_size]
  Weight in_proj_z;             // [Hv Dv, hidden_size]
  Weight in_proj_a, in_proj_b;  // [Hv, hidden_size]
  Weight out_proj;              // [hidden_size, Hv Dv]
  Tensor2 conv1d;               // [linear_conv_kernel_dim, 2 Hk Dk + Hv Dv]: see by_tap
  Tensor1 A;                    // [Hv]: -exp(A_log), brought to this form at load
  Tensor1 dt_bias;              // [Hv]
  Tensor1 norm;                 // [Dv], not zero-centred
  std::vector<int> key_head;    // [Hv]: the key head that serves a value head
};

// conv1d.weight as files hold it, the `width` taps of a channel side by side, -> [width, C], as one
// token needs them: tap j of all channels is a row, like the inputs that it meets.
Tensor2 by_tap(const Tensor1& weight, int width);

// What one sequence remembers in one DeltaNet layer; its size does not grow.
struct DeltaState {
  Tensor2
      tail;   // [linear_conv_kernel_dim - 1, 2 Hk Dk + Hv Dv]: the last inputs of the convolution
  Tensor3 S;  // [Hv, Dk, Dv]
};

// The state before the first token: zeros.
DeltaState empty_delta_state(const Config& config);

// x [T, hidden_size] -> [T, hidden_size], T the packed rows of all shares (segment.h); a sequence's
// state is moved on by its own rows.
Tensor2 deltanet_forward(const Ops& ops, const Config& config, const DeltaNet& weights,
                         const Tensor2& x, std::span<const Share<DeltaState>> shares);

// a, b [T, Hv] -> g = A * softplus(a + dt_bias) <= 0, the logarithm of the decay, and
// beta = sigmoid(b), how much of the old value is overwritten.
struct Gates {
  Tensor2 g, beta;  // [T, Hv]
};
Gates gates(const Tensor2& a, const Tensor2& b, const Tensor1& A, const Tensor1& dt_bias);

// tail [width - 1, C] becomes the last rows of the old tail and in [T, C] together.
void move_tail(const Tensor2& in, Tensor2& tail);

namespace plain {
// See Ops::conv_qkv. Tap j of `width` meets the input of width - 1 - j tokens ago; taps are added
// oldest first. L2: x / sqrt(sum(x^2) + 1e-6), the reference's l2norm, eps inside the root.
Qkv conv_qkv(const Tensor2& in, const Tensor2& kernel, const Ops::Heads& heads, Tensor2& tail);
// See Ops::delta_rule. (torch_recurrent_gated_delta_rule)
Tensor3 delta_rule(const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                   const std::vector<int>& key_head, Tensor3& S);
}  // namespace plain

namespace fast {
Qkv conv_qkv(const Tensor2& in, const Tensor2& kernel, const Ops::Heads& heads, Tensor2& tail);
// Blocks of columns of S that stay in L1, one sweep over each per token, heads in threads
// (deltanet_fast.cpp).
Tensor3 delta_rule(const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                   const std::vector<int>& key_head, Tensor3& S);
}  // namespace fast

}  // namespace qwen
