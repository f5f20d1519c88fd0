#include "qwen/linear.h"

#include <stdexcept>
#include <vector>

namespace qwen {

void check_linear(const Tensor2& x, const Weight& w) {
  if (dim(x, 1) == w.cols) return;
  throw std::invalid_argument("[linear] x has " + std::to_string(dim(x, 1)) + " columns, " +
                              (w.name.empty() ? "w" : w.name) + " is [" + std::to_string(w.rows) +
                              ", " + std::to_string(w.cols) + "]: the last axes must agree");
}

namespace plain {

Tensor2 linear(const Tensor2& x, const Weight& w) {
  check_linear(x, w);
  const int T = dim(x, 0), K = w.cols, N = w.rows;
  Tensor2 y = uninit(T, N);
  std::vector<float> w_n(K);
  for (int n = 0; n < N; ++n) {
    to_float(w.dtype, row(w, n), K, w_n.data());
    for (int t = 0; t < T; ++t) {
      float total = 0;
      for (int k = 0; k < K; ++k) {
        const float x_tk = w.dtype == DType::BF16 ? bf16_to_float(float_to_bf16(x(t, k))) : x(t, k);
        total += x_tk * w_n[k];
      }
      y(t, n) = total;
    }
  }
  return y;
}

}  // namespace plain
}  // namespace qwen
