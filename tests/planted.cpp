#include "tests/planted.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "qwen/attention.h"
#include "qwen/chunk.h"
#include "qwen/deltanet.h"
#include "qwen/linear.h"
#include "qwen/mlp.h"
#include "qwen/norm.h"
#include "qwen/parallel.h"
#include "qwen/rope.h"
#include "qwen/segment.h"
#include "qwen/simd.h"
#include "qwen/tables.h"

namespace qwen {
namespace {

using Heads = Ops::Heads;

// ---- norms ----

Tensor2 norm_with_scale_off_by(float amount, const Tensor2& x, Tensor1 weight, float eps) {
  weight += amount;
  return plain::rms_norm(x, weight, eps);
}

Tensor2 norm_with_eps_outside_the_root(const Tensor2& x, const Tensor1& weight, float eps) {
  Tensor2 y = plain::rms_norm(x, weight, 0);
  for (int t = 0; t < dim(x, 0); ++t) {
    float squares = 0;
    for (int i = 0; i < dim(x, 1); ++i) squares += x(t, i) * x(t, i);
    const float rms = std::sqrt(squares / dim(x, 1));
    for (int i = 0; i < dim(x, 1); ++i) y(t, i) = x(t, i) / (rms + eps) * weight(i);
  }
  return y;
}

Tensor2 layer_norm(Tensor2 x, const Tensor1& weight, float eps) {
  const int H = dim(x, 1);
  for (int t = 0; t < dim(x, 0); ++t) {
    float mean = 0;
    for (int i = 0; i < H; ++i) mean += x(t, i) / H;
    for (int i = 0; i < H; ++i) x(t, i) -= mean;
  }
  return plain::rms_norm(x, weight, eps);
}

Tensor2 gate_before_the_norm(const Tensor2& x, const Tensor2& z, const Tensor1& weight, float eps) {
  return plain::rms_norm(plain::swiglu(z, x), weight, eps);
}

Tensor2 gate_without_silu(const Tensor2& x, const Tensor2& z, const Tensor1& weight, float eps) {
  return plain::sigmoid_gate(plain::rms_norm(x, weight, eps), z);
}

// ---- q_proj's output: per head, D of the query and D of its gate ----

bool is_gated_q_proj(const Weight& w, const Config& config) {
  return config.attn_output_gate && w.name.ends_with("q_proj.weight");
}

Tensor2 swapped_halves(Tensor2 y, int D) {
  for (int t = 0; t < dim(y, 0); ++t) {
    float* head = row(y, t);
    for (; head < row(y, t) + dim(y, 1); head += 2 * D) std::swap_ranges(head, head + D, head + D);
  }
  return y;
}

// As if all queries came first and then all gates.
Tensor2 halves_of_the_whole(const Tensor2& y, int D) {
  const int half = dim(y, 1) / 2;
  Tensor2 seen = y;
  for (int t = 0; t < dim(y, 0); ++t) {
    for (int from = 0; from < half; from += D) {
      std::copy_n(row(y, t) + from, D, row(seen, t) + 2 * from);
      std::copy_n(row(y, t) + half + from, D, row(seen, t) + 2 * from + D);
    }
  }
  return seen;
}

// ---- rope ----

void rope_of_neighbours(Tensor3& x, const Tensor2& cos, const Tensor2& sin) {
  for (int t = 0; t < dim(x, 0); ++t) {
    for (int h = 0; h < dim(x, 1); ++h) {
      for (int i = 0; i < dim(cos, 1); ++i) {
        const float a = x(t, h, 2 * i), b = x(t, h, 2 * i + 1);
        x(t, h, 2 * i) = a * cos(t, i) - b * sin(t, i);
        x(t, h, 2 * i + 1) = b * cos(t, i) + a * sin(t, i);
      }
    }
  }
}

void rope_backwards(Tensor3& x, const Tensor2& cos, Tensor2 sin) {
  sin *= -1.0f;
  plain::rope(x, cos, sin);
}

// Turns the last dimensions of a head and leaves the first.
void rope_at_the_end(Tensor3& x, const Tensor2& cos, const Tensor2& sin) {
  const int D = dim(x, 2), R = 2 * dim(cos, 1), heads = dim(x, 0) * dim(x, 1);
  for (int h = 0; h < heads; ++h)
    std::rotate(&x.data()[h * D], &x.data()[h * D + D - R], &x.data()[h * D] + D);
  plain::rope(x, cos, sin);
  for (int h = 0; h < heads; ++h)
    std::rotate(&x.data()[h * D], &x.data()[h * D + R], &x.data()[h * D] + D);
}

// ---- attention ----

// Attention with what else it may get wrong: how many keys a query sees, which key/value head it
// reads, and its scale.
struct Reading {
  std::function<int(int position, int t, int T)> keys;
  std::function<int(int h, int Hq, int Hkv)> head;
  float exponent;  // of D in the scale
};
const Reading kRight = {[](int position, int t, int) { return position + t + 1; },
                        [](int h, int Hq, int Hkv) { return h / (Hq / Hkv); }, -0.5f};

Tensor2 attention(const Reading& reading, const Tensor3& q, const Tensor3& keys,
                  const Tensor3& values, int position) {
  const int T = dim(q, 0), Hq = dim(q, 1), D = dim(q, 2), Hkv = dim(keys, 1);
  const float scale = std::pow(static_cast<float>(D), reading.exponent);
  Tensor2 y = zeros(T, Hq * D);
  for (int t = 0; t < T; ++t) {
    const int S = reading.keys(position, t, T);
    std::vector<float> p(S);
    for (int h = 0; h < Hq; ++h) {
      const int kv = reading.head(h, Hq, Hkv);
      for (int s = 0; s < S; ++s) {
        p[s] = 0;
        for (int i = 0; i < D; ++i) p[s] += q(t, h, i) * keys(s, kv, i) * scale;
      }
      const float highest = *std::max_element(p.begin(), p.end());
      float sum = 0;
      for (int s = 0; s < S; ++s) sum += p[s] = std::exp(p[s] - highest);
      for (int s = 0; s < S; ++s) {
        for (int i = 0; i < D; ++i) y(t, D * h + i) += p[s] / sum * values(s, kv, i);
      }
    }
  }
  return y;
}

// Every query also sees the key after its own, where there is one.
Tensor2 attention_to_the_next(const Tensor3& q, const Tensor3& keys, const Tensor3& values,
                              int position) {
  Reading wrong = kRight;
  wrong.keys = [](int at, int t, int T) { return at + std::min(t + 2, T); };
  return attention(wrong, q, keys, values, position);
}

Tensor2 attention_with_heads_in_turn(const Tensor3& q, const Tensor3& keys, const Tensor3& values,
                                     int position) {
  Reading wrong = kRight;
  wrong.head = [](int h, int, int Hkv) { return h % Hkv; };
  return attention(wrong, q, keys, values, position);
}

Tensor2 attention_without_scale(const Tensor3& q, const Tensor3& keys, const Tensor3& values,
                                int position) {
  Reading wrong = kRight;
  wrong.exponent = 0;
  return attention(wrong, q, keys, values, position);
}

// ---- conv_qkv ----

Tensor2 reversed_taps(const Tensor2& kernel) {
  Tensor2 reversed = kernel;
  for (int c = 0; c < dim(kernel, 0); ++c) {
    std::reverse(row(reversed, c), row(reversed, c) + dim(kernel, 1));
  }
  return reversed;
}

// The convolution alone, without silu.
Tensor2 conv(const Tensor2& in, const Tensor2& kernel, Tensor2& tail) {
  const int width = dim(kernel, 1);
  Tensor2 y = zeros(dim(in, 0), dim(in, 1));
  for (int t = 0; t < dim(in, 0); ++t) {
    for (int c = 0; c < dim(in, 1); ++c) {
      for (int j = 0; j < width; ++j) {
        const int s = t - (width - 1) + j;
        y(t, c) += kernel(c, j) * (s >= 0 ? in(s, c) : tail(s + width - 1, c));
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

Qkv right_conv_qkv(const Tensor2& in, const Tensor2& kernel, const Heads& heads, Tensor2& tail) {
  Qkv y = split(silu(conv(in, kernel, tail)), heads);
  l2_normalize(y.q, 1e-6f);
  l2_normalize(y.k, 1e-6f);
  y.q /= std::sqrt(static_cast<float>(heads.Dk));
  return y;
}

Qkv conv_qkv_without_scale(const Tensor2& in, const Tensor2& kernel, const Heads& heads,
                           Tensor2& tail) {
  Qkv y = plain::conv_qkv(in, kernel, heads, tail);
  y.q *= std::sqrt(static_cast<float>(heads.Dk));
  return y;
}

Qkv conv_qkv_without_eps(const Tensor2& in, const Tensor2& kernel, const Heads& heads,
                         Tensor2& tail) {
  Qkv y = split(silu(conv(in, kernel, tail)), heads);
  l2_normalize(y.q, 0);
  l2_normalize(y.k, 0);
  y.q /= std::sqrt(static_cast<float>(heads.Dk));
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

Qkv conv_qkv_without_silu(const Tensor2& in, const Tensor2& kernel, const Heads& heads,
                          Tensor2& tail) {
  Qkv y = split(conv(in, kernel, tail), heads);
  l2_normalize(y.q, 1e-6f);
  l2_normalize(y.k, 1e-6f);
  y.q /= std::sqrt(static_cast<float>(heads.Dk));
  return y;
}

Qkv conv_qkv_without_history(const Tensor2& in, const Tensor2& kernel, const Heads& heads,
                             Tensor2& tail) {
  tail.fill(0.0f);
  return plain::conv_qkv(in, kernel, heads, tail);
}

// ---- the delta rule ----

// The rule for one token and head, on S [Dk, Dv]: o [Dv] is what it reads. decay, beta as they
// come.
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

Tensor3 chunk_with_unmasked_exponent(const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                                     const std::vector<int>& key_head, Tensor3& S) {
  const int T = dim(g, 0), Hv = dim(g, 1), Dv = dim(qkv.v, 2), Dk = dim(qkv.k, 2);
  Tensor3 o = uninit(T, Hv, Dv);
  for (int h = 0; h < Hv; ++h) {
    for (int first = 0; first < T; first += 64) {
      const int C = std::min(64, T - first), at = key_head[h];
      const Tensor2 earlier = decay_unmasked(g, h, first, C, 0);
      const Tensor2 up_to = decay_unmasked(g, h, first, C, 1);
      Tensor2 d = zeros(C, Dv);
      float since_start = 0;
      for (int i = 0; i < C; ++i) {
        const float *q = &qkv.q(first + i, at, 0), *k = &qkv.k(first + i, at, 0);
        since_start += g(first + i, h);
        const auto add = [&](const float* x, const Tensor2& decay, std::vector<float> y) {
          for (float& value : y) value *= std::exp(since_start);
          for (int j = 0; j < C; ++j) {
            const float weight = decay(i, j) * simd::dot(x, &qkv.k(first + j, at, 0), Dk);
            for (int c = 0; c < Dv; ++c) y[c] += weight * d(j, c);
          }
          return y;
        };
        const std::vector<float> recalled = add(k, earlier, recall(&S(h, 0, 0), k, Dk, Dv));
        for (int c = 0; c < Dv; ++c) {
          d(i, c) = beta(first + i, h) * (qkv.v(first + i, h, c) - recalled[c]);
        }
        std::copy_n(add(q, up_to, recall(&S(h, 0, 0), q, Dk, Dv)).begin(), Dv, &o(first + i, h, 0));
      }
      for (int i = 0; i < Dk * Dv; ++i) (&S(h, 0, 0))[i] *= std::exp(since_start);
      for (int j = 0; j < C; ++j) {
        std::vector<float> left(row(d, j), row(d, j) + Dv);
        for (float& value : left) value *= up_to(C - 1, j);
        write(&S(h, 0, 0), &qkv.k(first + j, at, 0), left, Dk);
      }
    }
  }
  return o;
}

// ---- right numbers in another order: no reference notices, the next token might ----

// A single row has too few sums for all threads: K is split instead.
Tensor2 linear_splitting_k(const Tensor2& x, const Weight& w, int parts) {
  const Weight in_float = convert(w, DType::F32);
  std::vector<float> w_n(w.cols);
  Tensor2 y = zeros(dim(x, 0), w.rows);
  for (int n = 0; n < w.rows; ++n) {
    to_float(DType::F32, row(in_float, n), w.cols, w_n.data());
    for (int t = 0; t < dim(x, 0); ++t) {
      for (int part = 0; part < parts; ++part) {
        const int begin = w.cols * part / parts, end = w.cols * (part + 1) / parts;
        y(t, n) += simd::dot(row(x, t) + begin, &w_n[begin], end - begin);
      }
    }
  }
  return y;
}

// Rows as one long array: which elements fall into the incomplete last vector, and are computed by
// another exp, depends on how many rows there are.
Tensor2 swiglu_with_another_tail(const Tensor2& gate, const Tensor2& up) {
  Tensor2 y = fast::swiglu(gate, up);
  const std::size_t whole = y.size() / simd::kLanes * simd::kLanes;
  for (std::size_t i = whole; i < y.size(); ++i) {
    const float x = gate.data()[i];
    y.data()[i] = static_cast<float>(x / (1 + std::exp(-static_cast<double>(x)))) * up.data()[i];
  }
  return y;
}

// Keys are read in two parts, those of the cache and those of this call, each with a softmax of its
// own; the two are merged.
Tensor2 attention_in_two_parts(const Tensor3& q, const Tensor3& keys, const Tensor3& values,
                               int position) {
  const int T = dim(q, 0), Hq = dim(q, 1), D = dim(q, 2), Hkv = dim(keys, 1);
  const float scale = 1 / std::sqrt(static_cast<float>(D));
  Tensor2 y = zeros(T, Hq * D);
  for (int t = 0; t < T; ++t) {
    for (int h = 0; h < Hq; ++h) {
      const int kv = h / (Hq / Hkv);
      float highest = -std::numeric_limits<float>::infinity(), sum = 0;
      for (const auto& [begin, end] : {std::pair{0, position}, {position, position + t + 1}}) {
        float part_highest = highest;
        std::vector<float> p;
        for (int s = begin; s < end; ++s) {
          p.push_back(simd::dot(&q(t, h, 0), &keys(s, kv, 0), D) * scale);
          part_highest = std::max(part_highest, p.back());
        }
        const float shrink = sum > 0 ? std::exp(highest - part_highest) : 0;
        sum *= shrink;
        for (int i = 0; i < D; ++i) y(t, D * h + i) *= shrink;
        for (int s = begin; s < end; ++s) {
          const float weight = std::exp(p[s - begin] - part_highest);
          sum += weight;
          for (int i = 0; i < D; ++i) y(t, D * h + i) += weight * values(s, kv, i);
        }
        highest = part_highest;
      }
      for (int i = 0; i < D; ++i) y(t, D * h + i) /= sum;
    }
  }
  return y;
}

Tensor3 delta_rule_in_chunks_if_long(const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                                     const std::vector<int>& key_head, Tensor3& S) {
  if (dim(g, 0) < 64) return plain::delta_rule(qkv, g, beta, key_head, S);
  return plain::chunk_delta_rule(qkv, g, beta, key_head, S);
}

// ---- the list ----

// plant(&Ops::rope, rope_backwards): a bug that is one function in the place of another.
template <class Entry, class Wrong>
std::function<void(Ops&, const Config&)> plant(Entry Ops::*entry, Wrong wrong) {
  return [=](Ops& ops, const Config&) { ops.*entry = wrong; };
}

// Scales are 1 + weight by the time an operator sees them.
std::function<void(Ops&, const Config&)> plant_scale_off_by(float amount) {
  return plant(&Ops::rms_norm, [=](const Tensor2& x, const Tensor1& weight, float eps) {
    return norm_with_scale_off_by(amount, x, weight, eps);
  });
}

// A linear whose result for q_proj is rearranged.
std::function<void(Ops&, const Config&)> plant_in_q_proj(
    const std::function<Tensor2(const Tensor2& y, int D)>& rearrange) {
  return [=](Ops& ops, const Config& config) {
    ops.linear = [right = ops.linear, rearrange, config](const Tensor2& x, const Weight& w) {
      const Tensor2 y = right(x, w);
      return is_gated_q_proj(w, config) ? rearrange(y, config.head_dim) : y;
    };
  };
}

std::function<void(Ops&, const Config&)> plant_step(Step step) {
  return plant(&Ops::delta_rule, [=](const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                                     const std::vector<int>& key_head, Tensor3& S) {
    return delta_rule(step, qkv, g, beta, key_head, S);
  });
}

}  // namespace

const std::vector<PlantedBug>& planted_bugs() {
  static const std::vector<PlantedBug> bugs = {
      {"a norm scales by weight, not by 1 + weight", "rms_norm", plant_scale_off_by(-1)},
      {"a norm adds the 1 to its weight twice", "rms_norm", plant_scale_off_by(1)},
      {"a norm adds eps outside the root", "rms_norm",
       plant(&Ops::rms_norm, norm_with_eps_outside_the_root)},
      {"a norm subtracts the mean first", "rms_norm", plant(&Ops::rms_norm, layer_norm)},
      {"the gated norm gates before it normalises", "gated_rms_norm",
       plant(&Ops::gated_rms_norm, gate_before_the_norm)},
      {"the gated norm's gate is sigmoid, not silu", "gated_rms_norm",
       plant(&Ops::gated_rms_norm, gate_without_silu)},
      {"the MLP applies silu to up, not to gate", "swiglu",
       plant(&Ops::swiglu,
             [](const Tensor2& gate, const Tensor2& up) { return plain::swiglu(up, gate); })},
      {"query and gate of a head are swapped", "logits", plant_in_q_proj(swapped_halves)},
      {"q_proj gives all queries, then all gates", "logits", plant_in_q_proj(halves_of_the_whole)},
      {"attention's output gate is silu, not sigmoid", "sigmoid_gate",
       plant(&Ops::sigmoid_gate,
             [](const Tensor2& x, const Tensor2& gate) { return plain::swiglu(gate, x); })},
      {"rope turns neighbours, not halves", "rope", plant(&Ops::rope, rope_of_neighbours)},
      {"rope turns the other way", "rope", plant(&Ops::rope, rope_backwards)},
      {"rope turns the last dimensions of a head", "rope", plant(&Ops::rope, rope_at_the_end)},
      {"a query sees the key after its own", "attention",
       plant(&Ops::attention, attention_to_the_next)},
      {"query heads take key/value heads in turn", "attention",
       plant(&Ops::attention, attention_with_heads_in_turn)},
      {"scores are not divided by sqrt(D)", "attention",
       plant(&Ops::attention, attention_without_scale)},
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

      {"linear splits K when there is one row", "any pieces",
       plant(&Ops::linear,
             [](const Tensor2& x, const Weight& w) {
               return linear_splitting_k(x, w, dim(x, 0) == 1 ? 2 : 1);
             })},
      {"linear splits K among the threads", "any threads",
       plant(&Ops::linear,
             [](const Tensor2& x, const Weight& w) {
               return linear_splitting_k(x, w, thread_count());
             })},
      {"linear splits K when there are few rows in the batch", "packed with others",
       plant(&Ops::linear,
             [](const Tensor2& x, const Weight& w) {
               return linear_splitting_k(x, w, dim(x, 0) < 70 ? 2 : 1);
             })},
      {"the end of a whole tensor is computed by another exp", "any pieces",
       plant(&Ops::swiglu, swiglu_with_another_tail)},
      {"cached and new keys are read apart and merged", "any pieces",
       plant(&Ops::attention, attention_in_two_parts)},
      {"long pieces run in chunks, short ones do not", "any pieces",
       plant(&Ops::delta_rule, delta_rule_in_chunks_if_long)},
  };
  return bugs;
}

Ops planted_code_made_right() {
  Ops ops = plain_ops();
  ops.attention = [](const Tensor3& q, const Tensor3& keys, const Tensor3& values, int position) {
    return attention(kRight, q, keys, values, position);
  };
  ops.conv_qkv = right_conv_qkv;
  plant_step(right_step)(ops, {});
  return ops;
}

}  // namespace qwen
