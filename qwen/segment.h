// Several sequences in one call: their new rows are packed one after the other, without padding.
//
//   x  ┌ rows of A ┬ rows of B ┬ C ┐      shares: {&A, 5}, {&B, 3}, {&C, 1}
//
// Products with weights run over all rows at once: the weights are read once for everybody. What
// has a memory runs for one sequence after the other, on its own rows and its own state.
#pragma once

#include <algorithm>
#include <span>
#include <utility>

#include "qwen/tensor.h"

namespace qwen {

// One sequence's share of the packed rows, and what it remembers.
template <class State>
struct Share {
  State* state;
  int rows;
};

// Rows first … first + count - 1 of x [T, N], as a tensor of their own.
inline Tensor2 slice(const Tensor2& x, int first, int count) {
  Tensor2 part = uninit(count, dim(x, 1));
  std::copy_n(row(x, first), part.size(), part.data());
  return part;
}

// The same of an x that nobody needs afterwards: all of its rows are handed on as they are.
inline Tensor2 slice(Tensor2&& x, int first, int count) {
  return count == dim(x, 0) ? std::move(x) : slice(std::as_const(x), first, count);
}

// Calls f(first row, share) for each share in turn, and stacks the results [rows, N].
// A sequence alone is the common case: its result is handed on as it is.
template <class State, class F>
Tensor2 for_each_sequence(std::span<const Share<State>> shares, F f) {
  if (shares.size() == 1) return f(0, shares[0]);
  int rows = 0;
  for (const Share<State>& share : shares) rows += share.rows;
  Tensor2 all;
  int first = 0;
  for (const Share<State>& share : shares) {
    const Tensor2 part = f(first, share);
    if (first == 0) all = uninit(rows, dim(part, 1));
    std::copy_n(part.data(), part.size(), row(all, first));
    first += share.rows;
  }
  return all;
}

}  // namespace qwen
