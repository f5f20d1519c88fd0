// Bugs in full attention, and in RoPE.
#include <algorithm>
#include <cmath>

#include "qwen/attention.h"
#include "qwen/mlp.h"
#include "qwen/rope.h"
#include "tests/planted.h"

namespace qwen {
namespace {

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

// A linear whose result for q_proj is rearranged.
Plant plant_in_q_proj(const std::function<Tensor2(const Tensor2& y, int D)>& rearrange) {
  return [=](Ops& ops, const Config& config) {
    ops.products = one_by_one([right = ops, rearrange, config](const Tensor2& x, const Weight& w) {
      const Tensor2 y = right.linear(x, w);
      return is_gated_q_proj(w, config) ? rearrange(y, config.head_dim) : y;
    });
  };
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
  const int D = dim(x, 2), R = 2 * dim(cos, 1);
  const auto shift_heads = [&](int first) {
    for (float* head = x.data(); head < x.data() + x.size(); head += D) {
      std::rotate(head, head + first, head + D);
    }
  };
  shift_heads(D - R);
  plain::rope(x, cos, sin);
  shift_heads(R);
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

}  // namespace

std::vector<PlantedBug> attention_bugs() {
  return {
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
  };
}

void plant_no_attention_bug(Ops& ops) {
  ops.attention = [](const Tensor3& q, const Tensor3& keys, const Tensor3& values, int position) {
    return attention(kRight, q, keys, values, position);
  };
}

}  // namespace qwen
