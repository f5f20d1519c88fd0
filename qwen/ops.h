// The table of operators: everything a layer computes that is worth a kernel of its own.
//
// The layers (mlp, attention, deltanet, layer, model) are written once, in terms of this table.
// Which code runs is decided by who fills it in: the fast kernels, the plain loops of the book,
// both at once with a comparison (--check), the same with a stopwatch (--profile), or, in the
// tests, a table with one entry wrong on purpose.
//
// An entry is a std::function, so that a table can carry what it reports to. That costs about
// 2 ns a call, and a token of Qwen3.5-0.8B makes some 260 calls.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "qwen/tensor.h"
#include "qwen/weights.h"

namespace qwen {

struct Qkv {
  Tensor3 q, k;  // [T, Hk, Dk]
  Tensor3 v;     // [T, Hv, Dv]
};

struct Ops {
  // Chapter 3. x [T, H], weight [H] -> [T, H]: x / rms(x) * weight for every row.
  std::function<Tensor2(const Tensor2& x, const Tensor1& weight, float eps)> rms_norm;

  // Chapter 3. x, z [T, D], weight [D] -> [T, D]: rms_norm(x) * silu(z).
  std::function<Tensor2(const Tensor2& x, const Tensor2& z, const Tensor1& weight, float eps)>
      gated_rms_norm;

  // Chapter 4. x [T, K], every w [N, K] -> for every w [T, N]: x w^T. The layers call it as
  // y = ops.linear(x, w), and auto [gate, up] = ops.linear(x, gate_proj, up_proj) where several
  // matrices meet the same x: then x is looked at once, and the threads meet once.
  std::function<std::vector<Tensor2>(const Tensor2& x, std::span<const Weight* const> ws)> products;

  Tensor2 linear(const Tensor2& x, const Weight& w) const {
    const Weight* const only = &w;
    return std::move(products(x, {&only, 1})[0]);
  }
  template <class... More>
  auto linear(const Tensor2& x, const Weight& w, const More&... more) const {
    const std::array<const Weight*, 1 + sizeof...(More)> all = {&w, &more...};
    std::vector<Tensor2> ys = products(x, all);
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return std::make_tuple(std::move(ys[I])...);
    }
    (std::make_index_sequence<all.size()>());
  }

  // Chapter 4. gate, up [T, I] -> [T, I]: silu(gate) * up.
  std::function<Tensor2(const Tensor2& gate, const Tensor2& up)> swiglu;

  // Chapter 5. x [T, heads, D], cos, sin [T, R / 2]: rotates the first R of D dimensions in place.
  std::function<void(Tensor3& x, const Tensor2& cos, const Tensor2& sin)> rope;

  // Chapter 6. q [T, Hq, D]; keys, values [at least position + T, Hkv, D] -> [T, Hq * D]. Query t
  // stands at position + t and sees the keys 0 … position + t.
  std::function<Tensor2(const Tensor3& q, const Tensor3& keys, const Tensor3& values, int position)>
      attention;

  // Chapter 6. x, gate [T, N] -> [T, N]: x * sigmoid(gate).
  std::function<Tensor2(const Tensor2& x, const Tensor2& gate)> sigmoid_gate;

  // Chapter 7. in [T, C], C = 2 Hk Dk + Hv Dv; kernel [width, C]; tail [width - 1, C] holds the
  // inputs before this call and is moved on. Causal convolution and silu; then q and k are L2
  // normalised per head and q is scaled by Dk^-0.5. heads gives the four sizes.
  struct Heads {
    int Hk, Dk, Hv, Dv;
  };
  std::function<Qkv(const Tensor2& in, const Tensor2& kernel, const Heads& heads, Tensor2& tail)>
      conv_qkv;

  // Chapter 7. q, k [T, Hk, Dk]; v [T, Hv, Dv]; g, beta [T, Hv]; key_head [Hv]; S [Hv, Dk, Dv] is
  // moved on -> [T, Hv, Dv]. Per token and head, with k and q of head key_head[h]:
  // S *= exp(g); d = beta (v - S^T k); S += k d^T; o = S^T q.
  std::function<Tensor3(const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                        const std::vector<int>& key_head, Tensor3& S)>
      delta_rule;

  // Chapter 9. Told before each layer which one it is, for the tables that report; -1 is the head.
  std::function<void(int layer)> begin_layer = [](int) {};
};

// Ops::products out of a function of one matrix.
inline auto one_by_one(std::function<Tensor2(const Tensor2& x, const Weight& w)> linear) {
  return [linear = std::move(linear)](const Tensor2& x, std::span<const Weight* const> ws) {
    std::vector<Tensor2> ys;
    for (const Weight* w : ws) ys.push_back(linear(x, *w));
    return ys;
  };
}

}  // namespace qwen
