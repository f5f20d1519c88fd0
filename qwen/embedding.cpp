#include "qwen/embedding.h"

#include <stdexcept>
#include <string>

namespace qwen {

Tensor2 embed(const Weight& table, std::span<const int> ids) {
  for (std::size_t t = 0; t < ids.size(); ++t) {
    if (ids[t] < 0 || ids[t] >= table.rows) {
      throw std::invalid_argument("[embed] id " + std::to_string(ids[t]) + " at position " +
                                  std::to_string(t) + ", expected 0 to " +
                                  std::to_string(table.rows - 1) + ", the rows of " + table.name);
    }
  }
  Tensor2 x = uninit(ids.size(), table.cols);  // [T, hidden_size]
  for (int t = 0; t < dim(x, 0); ++t) {
    to_float(table.dtype, row(table, ids[t]), static_cast<std::size_t>(table.cols), row(x, t));
  }
  return x;
}

}  // namespace qwen
