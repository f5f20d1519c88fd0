// RMSNorm, with a plain and with a gated scale.
#pragma once

#include "qwen/tensor.h"

namespace qwen::plain {

// x [T, H], weight [H] -> [T, H]: y[t] = x[t] / sqrt(mean(x[t]^2) + eps) * weight.
// Zero-centred checkpoints store w where the scale is 1 + w; loading adds the 1, so there is one
// rms_norm. (Qwen3_5RMSNorm, Qwen3RMSNorm)
Tensor2 rms_norm(const Tensor2& x, const Tensor1& weight, float eps);

// x, z [T, D], weight [D] -> [T, D]: rms_norm(x, weight) * silu(z). (Qwen3_5RMSNormGated)
Tensor2 gated_rms_norm(const Tensor2& x, const Tensor2& z, const Tensor1& weight, float eps);

}  // namespace qwen::plain

namespace qwen::fast {

// The same signatures, vectorised (norm_fast.cpp).
Tensor2 rms_norm(const Tensor2& x, const Tensor1& weight, float eps);
Tensor2 gated_rms_norm(const Tensor2& x, const Tensor2& z, const Tensor1& weight, float eps);

}  // namespace qwen::fast
