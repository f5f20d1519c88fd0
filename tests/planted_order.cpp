// Right numbers in an order of arithmetic that depends on the call: no reference notices, but the
// same text may go on differently.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "qwen/chunk.h"
#include "qwen/deltanet.h"
#include "qwen/mlp.h"
#include "qwen/parallel.h"
#include "qwen/simd.h"
#include "tests/planted.h"

namespace qwen {
namespace {

// A single row has too few sums for all threads: K is split instead.
Tensor2 linear_splitting_k(const Tensor2& x, const Weight& w, int parts) {
  std::vector<float> w_n(w.cols);
  Tensor2 y = zeros(dim(x, 0), w.rows);
  for (int n = 0; n < w.rows; ++n) {
    to_float(w.dtype, row(w, n), w.cols, w_n.data());
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

Plant plant_linear(Tensor2 (*wrong)(const Tensor2& x, const Weight& w)) {
  return plant(&Ops::products, one_by_one(wrong));
}

}  // namespace

std::vector<PlantedBug> order_bugs() {
  return {
      {"linear splits K when there is one row", "any pieces",
       plant_linear([](const Tensor2& x, const Weight& w) {
         return linear_splitting_k(x, w, dim(x, 0) == 1 ? 2 : 1);
       })},
      {"linear splits K among the threads", "any threads",
       plant_linear([](const Tensor2& x, const Weight& w) {
         return linear_splitting_k(x, w, thread_count());
       })},
      {"linear splits K when there are few rows in the batch", "packed with others",
       plant_linear([](const Tensor2& x, const Weight& w) {
         return linear_splitting_k(x, w, dim(x, 0) < 70 ? 2 : 1);
       })},
      {"the end of a whole tensor is computed by another exp", "any pieces",
       plant(&Ops::swiglu, swiglu_with_another_tail)},
      {"cached and new keys are read apart and merged", "any pieces",
       plant(&Ops::attention, attention_in_two_parts)},
      {"long pieces run in chunks, short ones do not", "any pieces",
       plant(&Ops::delta_rule, delta_rule_in_chunks_if_long)},
  };
}

}  // namespace qwen
