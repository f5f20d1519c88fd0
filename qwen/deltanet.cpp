#include "qwen/deltanet.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "qwen/shape.h"

namespace qwen {

Tensor2 by_tap(const Tensor1& weight, int width) {
  const int C = dim(weight, 0) / width;
  Tensor2 taps = uninit(width, C);
  for (int j = 0; j < width; ++j) {
    for (int c = 0; c < C; ++c) taps(j, c) = weight(c * width + j);
  }
  return taps;
}

DeltaState empty_delta_state(const Config& config) {
  const int Hk = config.linear_num_key_heads, Dk = config.linear_key_head_dim;
  const int Hv = config.linear_num_value_heads, Dv = config.linear_value_head_dim;
  return {zeros(config.linear_conv_kernel_dim - 1, 2 * Hk * Dk + Hv * Dv), zeros(Hv, Dk, Dv)};
}

Tensor2 deltanet_forward(const Ops& ops, const Config& config, const DeltaNet& weights,
                         const Tensor2& x, std::span<const Share<DeltaState>> shares) {
  const Ops::Heads heads{config.linear_num_key_heads, config.linear_key_head_dim,
                         config.linear_num_value_heads, config.linear_value_head_dim};
  const int rows = dim(x, 0), Hv = heads.Hv, Dv = heads.Dv;

  Tensor2 in, z, a, b;  // [rows, 2 Hk Dk + Hv Dv], [rows, Hv * Dv], and twice [rows, Hv]
  std::tie(in, z, a, b) =
      ops.linear(x, weights.in_proj_qkv, weights.in_proj_z, weights.in_proj_a, weights.in_proj_b);
  Gates all = gates(a, b, weights.A, weights.dt_bias);

  Tensor2 o = for_each_sequence(shares, [&](int first, const Share<DeltaState>& share) {
    DeltaState& state = *share.state;
    const int T = share.rows;
    const Qkv qkv = ops.conv_qkv(slice(std::move(in), first, T), weights.conv1d, heads, state.tail);
    const Tensor2 g = slice(std::move(all.g), first, T);
    const Tensor2 beta = slice(std::move(all.beta), first, T);
    return reshape(ops.delta_rule(qkv, g, beta, weights.key_head, state.S), T, Hv * Dv);
  });

  // The gated norm runs over each head on its own, not over the row.
  const Tensor2 per_head = reshape(std::move(o), rows * Hv, Dv);
  const Tensor2 gate = reshape(std::move(z), rows * Hv, Dv);
  Tensor2 y = ops.gated_rms_norm(per_head, gate, weights.norm, config.rms_norm_eps);
  return ops.linear(reshape(std::move(y), rows, Hv * Dv), weights.out_proj);
}

Gates gates(const Tensor2& a, const Tensor2& b, const Tensor1& A, const Tensor1& dt_bias) {
  const int T = dim(a, 0), Hv = dim(a, 1);
  expect_shape("[gates] b", b, {T, Hv});
  expect_shape("[gates] A", A, {Hv});
  expect_shape("[gates] dt_bias", dt_bias, {Hv});
  Gates y{uninit(T, Hv), uninit(T, Hv)};
  for (int t = 0; t < T; ++t) {
    for (int h = 0; h < Hv; ++h) {
      // In double, then rounded: C libraries agree on that, while their float versions differ.
      const double x = a(t, h) + dt_bias(h);
      // log(1 + e^x); from 20 on the 1 is lost in rounding, and e^x would overflow in the end.
      const double softplus = x > 20 ? x : std::log1p(std::exp(x));
      y.g(t, h) = A(h) * static_cast<float>(softplus);
      y.beta(t, h) = static_cast<float>(1 / (1 + std::exp(-static_cast<double>(b(t, h)))));
    }
  }
  return y;
}

void move_tail(const Tensor2& in, Tensor2& tail) {
  const int T = dim(in, 0), C = dim(in, 1), kept = dim(tail, 0);
  for (int i = 0; i < kept; ++i) {
    const int s = T - kept + i;  // below 0: fewer new rows than the tail has, old ones move up
    std::copy_n(s >= 0 ? row(in, s) : row(tail, s + kept), C, row(tail, i));
  }
}

void check_conv_qkv(const Tensor2& in, const Tensor2& kernel, const Ops::Heads& heads,
                    const Tensor2& tail) {
  const int T = dim(in, 0), width = dim(kernel, 0);
  const int C = 2 * heads.Hk * heads.Dk + heads.Hv * heads.Dv;
  expect_shape("[conv_qkv] in", in, {T, C});
  expect_shape("[conv_qkv] kernel", kernel, {width, C});
  expect_shape("[conv_qkv] tail", tail, {width - 1, C});
}

void check_delta_rule(const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                      const std::vector<int>& key_head, const Tensor3& S) {
  const int T = dim(qkv.v, 0), Hv = dim(qkv.v, 1), Dv = dim(qkv.v, 2);
  const int Hk = dim(qkv.k, 1), Dk = dim(qkv.k, 2);
  expect_shape("[delta_rule] q", qkv.q, {T, Hk, Dk});
  expect_shape("[delta_rule] k", qkv.k, {T, Hk, Dk});
  expect_shape("[delta_rule] g", g, {T, Hv});
  expect_shape("[delta_rule] beta", beta, {T, Hv});
  expect_shape("[delta_rule] S", S, {Hv, Dk, Dv});
  if (static_cast<int>(key_head.size()) != Hv) {
    throw std::invalid_argument("[delta_rule] key_head has " + std::to_string(key_head.size()) +
                                " entries, expected one per value head, " + std::to_string(Hv));
  }
}

namespace plain {
namespace {

// in [T, C] -> [T, C]: every channel on its own, over the last `width` tokens, then silu.
Tensor2 causal_conv(const Tensor2& in, const Tensor2& kernel, const Tensor2& tail) {
  const int T = dim(in, 0), C = dim(in, 1), width = dim(kernel, 0);
  Tensor2 y = uninit(T, C);
  for (int t = 0; t < T; ++t) {
    for (int c = 0; c < C; ++c) {
      float sum = 0;
      for (int j = 0; j < width; ++j) {
        const int s = t - (width - 1) + j;  // the token that tap j meets; before 0, in the tail
        sum += kernel(j, c) * (s >= 0 ? in(s, c) : tail(s + width - 1, c));
      }
      y(t, c) = sum / (1 + std::exp(-sum));
    }
  }
  return y;
}

// Columns first … first + heads * D - 1 of y [T, C] -> [T, heads, D].
Tensor3 columns(const Tensor2& y, int first, int heads, int D) {
  const int T = dim(y, 0);
  Tensor3 part = uninit(T, heads, D);
  for (int t = 0; t < T; ++t) std::copy_n(row(y, t) + first, heads * D, row(part, t));
  return part;
}

// Every head to length 1, then times `scale`.
void l2_normalize(Tensor3& x, float scale) {
  const int T = dim(x, 0), heads = dim(x, 1), D = dim(x, 2);
  for (int t = 0; t < T; ++t) {
    for (int h = 0; h < heads; ++h) {
      float sum_of_squares = 0;
      for (int i = 0; i < D; ++i) sum_of_squares += x(t, h, i) * x(t, h, i);
      const float length = std::sqrt(sum_of_squares + 1e-6f);
      for (int i = 0; i < D; ++i) x(t, h, i) = x(t, h, i) / length * scale;
    }
  }
}

// One token of one head: S [Dk, Dv] moves on, o [Dv] (zeros before) is what q reads from it. All
// loops run along the rows of S, as they lie in memory.
void step(float* S, const float* q, const float* k, const float* v, float decay, float beta, int Dk,
          int Dv, float* o) {
  std::vector<float> d(Dv);
  // Forget: S *= exp(g).
  for (int i = 0; i < Dk; ++i) {
    for (int j = 0; j < Dv; ++j) S[i * Dv + j] *= decay;
  }
  // Recall what is stored under k, and see how far it is from v: d = beta (v - S^T k).
  for (int i = 0; i < Dk; ++i) {
    for (int j = 0; j < Dv; ++j) d[j] += S[i * Dv + j] * k[i];
  }
  for (int j = 0; j < Dv; ++j) d[j] = beta * (v[j] - d[j]);
  // Write the difference under k: S += k d^T.
  for (int i = 0; i < Dk; ++i) {
    for (int j = 0; j < Dv; ++j) S[i * Dv + j] += k[i] * d[j];
  }
  // Read under q: o = S^T q.
  for (int i = 0; i < Dk; ++i) {
    for (int j = 0; j < Dv; ++j) o[j] += S[i * Dv + j] * q[i];
  }
}

}  // namespace

Qkv conv_qkv(const Tensor2& in, const Tensor2& kernel, const Ops::Heads& heads, Tensor2& tail) {
  check_conv_qkv(in, kernel, heads, tail);
  const auto [Hk, Dk, Hv, Dv] = heads;
  const Tensor2 y = causal_conv(in, kernel, tail);
  move_tail(in, tail);
  Qkv qkv{columns(y, 0, Hk, Dk), columns(y, Hk * Dk, Hk, Dk), columns(y, 2 * Hk * Dk, Hv, Dv)};
  l2_normalize(qkv.q, 1 / std::sqrt(static_cast<float>(Dk)));
  l2_normalize(qkv.k, 1);
  return qkv;
}

Tensor3 delta_rule(const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                   const std::vector<int>& key_head, Tensor3& S) {
  check_delta_rule(qkv, g, beta, key_head, S);
  const int T = dim(qkv.v, 0), Hv = dim(qkv.v, 1), Dv = dim(qkv.v, 2), Dk = dim(qkv.k, 2);
  Tensor3 o = zeros(T, Hv, Dv);
  for (int t = 0; t < T; ++t) {
    for (int h = 0; h < Hv; ++h) {
      const int at_key = Dk * key_head[h], at_value = Dv * h;
      step(row(S, h), row(qkv.q, t) + at_key, row(qkv.k, t) + at_key, row(qkv.v, t) + at_value,
           std::exp(g(t, h)), beta(t, h), Dk, Dv, row(o, t) + at_value);
    }
  }
  return o;
}

}  // namespace plain
}  // namespace qwen
