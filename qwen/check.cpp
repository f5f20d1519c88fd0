#include "qwen/check.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>

namespace qwen {
namespace {

// How far two orders of n additions may drift apart, as a share of the largest result. Each
// addition rounds by half a unit in the last place, 2^-24; the errors of n of them add up like a
// random walk. 16 covers the worst element of a whole tensor, and results smaller than their terms.
double bound(int additions) {
  return 16 * std::ldexp(1.0, -24) * std::sqrt(static_cast<double>(additions));
}

// An exponential, a division and a root are each within a few units in the last place.
constexpr int kFunctions = 16;  // counted as so many additions

class Checker {
 public:
  void begin_layer(int layer) { layer_ = layer; }

  template <std::size_t Rank>
  void compare(const std::string& op, const Tensor<Rank>& actual, const Tensor<Rank>& expected,
               int additions) const {
    if (actual.shape() != expected.shape()) throw std::runtime_error(where(op) + "another shape");
    double largest = 0;
    for (float value : expected) largest = std::max<double>(largest, std::abs(value));
    const double allowed = bound(additions) * largest;
    const int rows = dim(expected, 0);
    const std::size_t columns = rows == 0 ? 0 : expected.size() / rows;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const float a = actual.data()[i], e = expected.data()[i];
      if (std::abs(static_cast<double>(a) - e) <= allowed) continue;  // false for NaN too
      std::ostringstream text;
      text.precision(9);
      text << where(op) << "row " << i / columns << ", column " << i % columns << " is " << a
           << ", the plain version gives " << e << " (they may differ by " << allowed << ")";
      throw std::runtime_error(text.str());
    }
  }

 private:
  std::string where(const std::string& op) const {
    return "[check] " + (layer_ < 0 ? "final norm and head" : "layer " + std::to_string(layer_)) +
           ", " + op + ": ";
  }

  int layer_ = 0;
};

}  // namespace

Ops checked_ops(const Ops& ops, const Ops& oracle) {
  const auto check = std::make_shared<Checker>();
  Ops both;
  both.begin_layer = [=](int layer) {
    check->begin_layer(layer);
    ops.begin_layer(layer);
  };
  both.rms_norm = [=](const Tensor2& x, const Tensor1& weight, float eps) {
    Tensor2 y = ops.rms_norm(x, weight, eps);
    check->compare("rms_norm", y, oracle.rms_norm(x, weight, eps), dim(x, 1) + kFunctions);
    return y;
  };
  both.gated_rms_norm = [=](const Tensor2& x, const Tensor2& z, const Tensor1& weight, float eps) {
    Tensor2 y = ops.gated_rms_norm(x, z, weight, eps);
    check->compare("gated_rms_norm", y, oracle.gated_rms_norm(x, z, weight, eps),
                   dim(x, 1) + kFunctions);
    return y;
  };
  both.products = [=](const Tensor2& x, std::span<const Weight* const> ws) {
    std::vector<Tensor2> ys = ops.products(x, ws);
    for (std::size_t i = 0; i < ws.size(); ++i) {
      check->compare("linear " + ws[i]->name, ys[i], oracle.linear(x, *ws[i]), ws[i]->cols);
    }
    return ys;
  };
  both.swiglu = [=](const Tensor2& gate, const Tensor2& up) {
    Tensor2 y = ops.swiglu(gate, up);
    check->compare("swiglu", y, oracle.swiglu(gate, up), kFunctions);
    return y;
  };
  both.rope = [=](Tensor3& x, const Tensor2& cos, const Tensor2& sin) {
    Tensor3 expected = x;
    ops.rope(x, cos, sin);
    oracle.rope(expected, cos, sin);
    check->compare("rope", x, expected, 2);
  };
  both.attention = [=](const Tensor3& q, const Tensor3& keys, const Tensor3& values, int position) {
    Tensor2 y = ops.attention(q, keys, values, position);
    check->compare("attention", y, oracle.attention(q, keys, values, position),
                   position + dim(q, 0) + dim(q, 2) + kFunctions);
    return y;
  };
  both.sigmoid_gate = [=](const Tensor2& x, const Tensor2& gate) {
    Tensor2 y = ops.sigmoid_gate(x, gate);
    check->compare("sigmoid_gate", y, oracle.sigmoid_gate(x, gate), kFunctions);
    return y;
  };
  both.conv_qkv = [=](const Tensor2& in, const Tensor2& kernel, const Ops::Heads& heads,
                      Tensor2& tail) {
    Tensor2 expected_tail = tail;
    Qkv y = ops.conv_qkv(in, kernel, heads, tail);
    const Qkv expected = oracle.conv_qkv(in, kernel, heads, expected_tail);
    const int additions = dim(kernel, 0) + heads.Dk + kFunctions;
    check->compare("conv_qkv q", y.q, expected.q, additions);
    check->compare("conv_qkv k", y.k, expected.k, additions);
    check->compare("conv_qkv v", y.v, expected.v, additions);
    check->compare("conv_qkv tail", tail, expected_tail, 0);
    return y;
  };
  both.delta_rule = [=](const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                        const std::vector<int>& key_head, Tensor3& S) {
    Tensor3 expected_S = S;
    Tensor3 y = ops.delta_rule(qkv, g, beta, key_head, S);
    const Tensor3 expected = oracle.delta_rule(qkv, g, beta, key_head, expected_S);
    const int additions = 4 * dim(qkv.k, 2) + dim(qkv.v, 0) + kFunctions;
    check->compare("delta_rule", y, expected, additions);
    check->compare("delta_rule S", S, expected_S, additions);
    return y;
  };
  return both;
}

}  // namespace qwen
