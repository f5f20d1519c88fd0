// Bugs in Gated DeltaNet: the convolution, the delta rule, and its chunks.
#include <algorithm>
#include <cmath>

#include "qwen/attention.h"
#include "qwen/deltanet.h"
#include "qwen/simd.h"
#include "tests/planted.h"

namespace qwen {
namespace {

using Heads = Ops::Heads;

// ---- conv_qkv ----

Tensor2 reversed_taps(const Tensor2& kernel) {
  const int width = dim(kernel, 0), C = dim(kernel, 1);
  Tensor2 reversed = uninit(width, C);
  for (int j = 0; j < width; ++j) std::copy_n(row(kernel, width - 1 - j), C, row(reversed, j));
  return reversed;
}

// The convolution alone, without silu.
Tensor2 conv(const Tensor2& in, const Tensor2& kernel, Tensor2& tail) {
  const int width = dim(kernel, 0);
  Tensor2 y = zeros(dim(in, 0), dim(in, 1));
  for (int t = 0; t < dim(in, 0); ++t) {
    for (int c = 0; c < dim(in, 1); ++c) {
      for (int j = 0; j < width; ++j) {
        const int s = t - (width - 1) + j;
        y(t, c) += kernel(j, c) * (s >= 0 ? in(s, c) : tail(s + width - 1, c));
      }
    }
  }
  move_tail(in, tail);
  return y;
}

Tensor2 silu(const Tensor2& x) {
  return plain::sigmoid_gate(x, x);
}

// The channels of y [T, C] as q, k and v.
Qkv split(const Tensor2& y, const Heads& heads) {
  const int T = dim(y, 0);
  Qkv parts{uninit(T, heads.Hk, heads.Dk), uninit(T, heads.Hk, heads.Dk),
            uninit(T, heads.Hv, heads.Dv)};
  for (int t = 0; t < T; ++t) {
    const float* from = row(y, t);
    for (Tensor3* part : {&parts.q, &parts.k, &parts.v}) {
      const int size = dim(*part, 1) * dim(*part, 2);
      std::copy_n(from, size, part->data() + t * size);
      from += size;
    }
  }
  return parts;
}

// Every head divided by sqrt(sum of squares + eps).
void l2_normalize(Tensor3& x, float eps) {
  const int D = dim(x, 2);
  for (float* head = x.data(); head < x.data() + x.size(); head += D) {
    float squares = 0;
    for (int i = 0; i < D; ++i) squares += head[i] * head[i];
    for (int i = 0; i < D; ++i) head[i] /= std::sqrt(squares + eps);
  }
}

// q and k to length 1, then q times Dk^-0.5.
Qkv normalized(Qkv y, float eps) {
  l2_normalize(y.q, eps);
  l2_normalize(y.k, eps);
  y.q /= std::sqrt(static_cast<float>(dim(y.q, 2)));
  return y;
}

Qkv right_conv_qkv(const Tensor2& in, const Tensor2& kernel, const Heads& heads, Tensor2& tail) {
  return normalized(split(silu(conv(in, kernel, tail)), heads), 1e-6f);
}

Qkv conv_qkv_without_silu(const Tensor2& in, const Tensor2& kernel, const Heads& heads,
                          Tensor2& tail) {
  return normalized(split(conv(in, kernel, tail), heads), 1e-6f);
}

Qkv conv_qkv_without_eps(const Tensor2& in, const Tensor2& kernel, const Heads& heads,
                         Tensor2& tail) {
  return normalized(split(silu(conv(in, kernel, tail)), heads), 0);
}

Qkv conv_qkv_without_scale(const Tensor2& in, const Tensor2& kernel, const Heads& heads,
                           Tensor2& tail) {
  Qkv y = right_conv_qkv(in, kernel, heads, tail);
  y.q *= std::sqrt(static_cast<float>(heads.Dk));
  return y;
}

Qkv conv_qkv_scaled_before_the_norm(const Tensor2& in, const Tensor2& kernel, const Heads& heads,
                                    Tensor2& tail) {
  Qkv y = split(silu(conv(in, kernel, tail)), heads);
  y.q /= std::sqrt(static_cast<float>(heads.Dk));
  l2_normalize(y.q, 1e-6f);
  l2_normalize(y.k, 1e-6f);
  return y;
}

Qkv conv_qkv_without_history(const Tensor2& in, const Tensor2& kernel, const Heads& heads,
                             Tensor2& tail) {
  tail.fill(0.0f);
  return plain::conv_qkv(in, kernel, heads, tail);
}

// ---- the delta rule ----

// The rule for one token and head, on S [Dk, Dv]: o [Dv] is what it reads.
using Step = void (*)(const float* q, const float* k, const float* v, float decay, float beta,
                      int Dk, int Dv, float* S, float* o);

Tensor3 delta_rule(Step step, const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                   const std::vector<int>& key_head, Tensor3& S) {
  const int T = dim(qkv.v, 0), Hv = dim(qkv.v, 1), Dv = dim(qkv.v, 2), Dk = dim(qkv.k, 2);
  Tensor3 o = zeros(T, Hv, Dv);
  for (int t = 0; t < T; ++t) {
    for (int h = 0; h < Hv; ++h) {
      const int at = key_head[h];
      step(&qkv.q(t, at, 0), &qkv.k(t, at, 0), &qkv.v(t, h, 0), std::exp(g(t, h)), beta(t, h), Dk,
           Dv, &S(h, 0, 0), &o(t, h, 0));
    }
  }
  return o;
}

// y [Dv] = S^T x
std::vector<float> recall(const float* S, const float* x, int Dk, int Dv) {
  std::vector<float> y(Dv);
  for (int i = 0; i < Dk; ++i) {
    for (int j = 0; j < Dv; ++j) y[j] += S[i * Dv + j] * x[i];
  }
  return y;
}

void write(float* S, const float* k, const std::vector<float>& d, int Dk) {
  const int Dv = static_cast<int>(d.size());
  for (int i = 0; i < Dk; ++i) {
    for (int j = 0; j < Dv; ++j) S[i * Dv + j] += k[i] * d[j];
  }
}

void right_step(const float* q, const float* k, const float* v, float decay, float beta, int Dk,
                int Dv, float* S, float* o) {
  for (int i = 0; i < Dk * Dv; ++i) S[i] *= decay;
  std::vector<float> d = recall(S, k, Dk, Dv);
  for (int j = 0; j < Dv; ++j) d[j] = beta * (v[j] - d[j]);
  write(S, k, d, Dk);
  std::copy_n(recall(S, q, Dk, Dv).begin(), Dv, o);
}

void decay_after_the_write(const float* q, const float* k, const float* v, float decay, float beta,
                           int Dk, int Dv, float* S, float* o) {
  std::vector<float> d = recall(S, k, Dk, Dv);
  for (int j = 0; j < Dv; ++j) d[j] = beta * (v[j] - d[j]);
  write(S, k, d, Dk);
  for (int i = 0; i < Dk * Dv; ++i) S[i] *= decay;
  std::copy_n(recall(S, q, Dk, Dv).begin(), Dv, o);
}

// What stood under the key is not taken away: linear attention with a decay.
void write_without_recall(const float* q, const float* k, const float* v, float decay, float beta,
                          int Dk, int Dv, float* S, float* o) {
  for (int i = 0; i < Dk * Dv; ++i) S[i] *= decay;
  std::vector<float> d(v, v + Dv);
  for (float& value : d) value *= beta;
  write(S, k, d, Dk);
  std::copy_n(recall(S, q, Dk, Dv).begin(), Dv, o);
}

Tensor3 delta_rule_without_beta(const Qkv& qkv, const Tensor2& g, Tensor2 beta,
                                const std::vector<int>& key_head, Tensor3& S) {
  beta.fill(1.0f);
  return plain::delta_rule(qkv, g, beta, key_head, S);
}

Tensor3 delta_rule_with_heads_in_turn(const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                                      std::vector<int> key_head, Tensor3& S) {
  for (std::size_t h = 0; h < key_head.size(); ++h) {
    key_head[h] = static_cast<int>(h) % dim(qkv.k, 1);
  }
  return plain::delta_rule(qkv, g, beta, key_head, S);
}

Tensor3 delta_rule_from_nothing(const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                                const std::vector<int>& key_head, Tensor3& S) {
  S.fill(0.0f);
  return plain::delta_rule(qkv, g, beta, key_head, S);
}

// The decay from token j to token i of a chunk for all pairs, those with j > i multiplied by zero
// afterwards. Their exponent is positive: where tokens forget nearly everything, exp overflows, and
// infinity times zero is not a number.
Tensor2 decay_unmasked(const Tensor2& g, int h, int first, int C, int diagonal) {
  Tensor2 decay = uninit(C, C);
  for (int i = 0; i < C; ++i) {
    for (int j = 0; j < C; ++j) {
      float between = 0;
      for (int s = std::min(i, j) + 1; s <= std::max(i, j); ++s) between += g(first + s, h);
      const float mask = j < i + diagonal ? 1.0f : 0.0f;
      decay(i, j) = mask * std::exp(j <= i ? between : -between);
    }
  }
  return decay;
}

// Tokens first … first + C - 1 of value head h, whose k and q are those of head `at`.
void run_unmasked(const Qkv& qkv, const Tensor2& g, const Tensor2& beta, int at, int h, int first,
                  int C, float* S, Tensor3& o) {
  const int Dv = dim(qkv.v, 2), Dk = dim(qkv.k, 2);
  const Tensor2 earlier = decay_unmasked(g, h, first, C, 0);
  const Tensor2 up_to = decay_unmasked(g, h, first, C, 1);
  Tensor2 d = zeros(C, Dv);
  float since_start = 0;
  // What is found under x: what S held before the chunk, and what the chunk has written.
  const auto read = [&](const float* x, int i, const Tensor2& decay) {
    std::vector<float> y = recall(S, x, Dk, Dv);
    for (float& value : y) value *= std::exp(since_start);
    for (int j = 0; j < C; ++j) {
      const float weight = decay(i, j) * simd::dot(x, &qkv.k(first + j, at, 0), Dk);
      for (int c = 0; c < Dv; ++c) y[c] += weight * d(j, c);
    }
    return y;
  };
  for (int i = 0; i < C; ++i) {
    const int t = first + i;
    since_start += g(t, h);
    const std::vector<float> recalled = read(&qkv.k(t, at, 0), i, earlier);
    for (int c = 0; c < Dv; ++c) d(i, c) = beta(t, h) * (qkv.v(t, h, c) - recalled[c]);
    std::copy_n(read(&qkv.q(t, at, 0), i, up_to).begin(), Dv, &o(t, h, 0));
  }
  for (int i = 0; i < Dk * Dv; ++i) S[i] *= std::exp(since_start);
  for (int j = 0; j < C; ++j) {
    std::vector<float> left(row(d, j), row(d, j) + Dv);
    for (float& value : left) value *= up_to(C - 1, j);
    write(S, &qkv.k(first + j, at, 0), left, Dk);
  }
}

Tensor3 chunk_with_unmasked_exponent(const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                                     const std::vector<int>& key_head, Tensor3& S) {
  const int T = dim(g, 0), Hv = dim(g, 1), chunk = 64;
  Tensor3 o = uninit(T, Hv, dim(qkv.v, 2));
  for (int h = 0; h < Hv; ++h) {
    for (int first = 0; first < T; first += chunk) {
      const int C = std::min(chunk, T - first);
      run_unmasked(qkv, g, beta, key_head[h], h, first, C, row(S, h), o);
    }
  }
  return o;
}

Plant plant_step(Step step) {
  return plant(&Ops::delta_rule, [=](const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                                     const std::vector<int>& key_head, Tensor3& S) {
    return delta_rule(step, qkv, g, beta, key_head, S);
  });
}

}  // namespace

std::vector<PlantedBug> deltanet_bugs() {
  return {
      {"q is not scaled by Dk^-0.5", "conv_qkv", plant(&Ops::conv_qkv, conv_qkv_without_scale)},
      {"the L2 norm has no eps", "conv_qkv", plant(&Ops::conv_qkv, conv_qkv_without_eps)},
      {"q is scaled before the L2 norm", "conv_qkv",
       plant(&Ops::conv_qkv, conv_qkv_scaled_before_the_norm)},
      {"the convolution's taps are reversed", "conv_qkv",
       plant(&Ops::conv_qkv,
             [](const Tensor2& in, const Tensor2& kernel, const Heads& heads, Tensor2& tail) {
               return plain::conv_qkv(in, reversed_taps(kernel), heads, tail);
             })},
      {"there is no silu after the convolution", "conv_qkv",
       plant(&Ops::conv_qkv, conv_qkv_without_silu)},
      {"the convolution forgets its history between calls", "logits after several pieces",
       plant(&Ops::conv_qkv, conv_qkv_without_history)},
      {"S decays after the write", "delta_rule", plant_step(decay_after_the_write)},
      {"a write does not take away what stood under its key", "delta_rule",
       plant_step(write_without_recall)},
      {"beta is forgotten", "delta_rule", plant(&Ops::delta_rule, delta_rule_without_beta)},
      {"value heads take key heads in turn", "logits",
       plant(&Ops::delta_rule, delta_rule_with_heads_in_turn)},
      {"S starts from zero in every call", "logits after several pieces",
       plant(&Ops::delta_rule, delta_rule_from_nothing)},
      {"a chunk computes exp of positive numbers and masks them", "delta_rule in chunks",
       plant(&Ops::delta_rule, chunk_with_unmasked_exponent)},
  };
}

void plant_no_deltanet_bug(Ops& ops) {
  ops.conv_qkv = right_conv_qkv;
  plant_step(right_step)(ops, {});
}

}  // namespace qwen
