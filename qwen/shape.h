// The check at the door of an operator: a wrong shape is the caller's mistake, said in one line.
#pragma once

#include <array>
#include <stdexcept>
#include <string>

#include "qwen/tensor.h"

namespace qwen {

template <std::size_t Rank>
std::string shape_text(const std::array<int, Rank>& shape) {
  std::string text;
  for (int size : shape) text += (text.empty() ? "[" : ", ") + std::to_string(size);
  return text + "]";
}

// expect_shape("[rms_norm] weight", weight, {H}): std::invalid_argument where it has another shape,
// as "[rms_norm] weight is [5], expected [7]".
template <std::size_t Rank>
void expect_shape(const char* name, const Tensor<Rank>& x, const std::array<int, Rank>& expected) {
  std::array<int, Rank> found;
  for (std::size_t axis = 0; axis < Rank; ++axis) found[axis] = dim(x, static_cast<int>(axis));
  if (found == expected) return;
  throw std::invalid_argument(std::string(name) + " is " + shape_text(found) + ", expected " +
                              shape_text(expected));
}

}  // namespace qwen
