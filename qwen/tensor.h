// Activations: dense float32 arrays, row-major.
//
// A Tensor2 named x with the comment "x [T, hidden_size]" has T rows of hidden_size floats, one
// after the other. The type gives the rank, the comment names the axes. Weights are a different
// thing (weights.h): they stay in their file, in the type they were stored in.
#pragma once

#include <cassert>
#include <cstddef>
#include <memory>
#include <utility>

#if __has_include(<xtensor/containers/xtensor.hpp>)  // xtensor 0.26 moved its headers
#include <xtensor/containers/xtensor.hpp>
#else
#include <xtensor/xtensor.hpp>
#endif

namespace qwen {

// A block of at least `bytes`, aligned to a cache line. Large blocks come from a list of returned
// ones where there is a fit: a forward pass asks for the same sizes again and again, and memory
// fresh from the system costs a page fault every 4 KiB. The list holds 256 MiB at most.
void* take_block(std::size_t bytes);
void return_block(void* block, std::size_t bytes) noexcept;

// A block that goes back to the system when the last owner lets go of it: for weights.
std::shared_ptr<std::byte> lasting_block(std::size_t bytes);

template <class T>
struct RecyclingAllocator {
  using value_type = T;
  RecyclingAllocator() = default;
  template <class U>
  RecyclingAllocator(const RecyclingAllocator<U>&) {}
  T* allocate(std::size_t n) { return static_cast<T*>(take_block(n * sizeof(T))); }
  void deallocate(T* p, std::size_t n) noexcept { return_block(p, n * sizeof(T)); }
  bool operator==(const RecyclingAllocator&) const { return true; }
};

template <std::size_t Rank>
using Tensor = xt::xtensor<float, Rank, xt::layout_type::row_major, RecyclingAllocator<float>>;
using Tensor1 = Tensor<1>;
using Tensor2 = Tensor<2>;
using Tensor3 = Tensor<3>;

// A tensor whose elements are not set yet: uninit(T, N) is a Tensor2.
template <class... Size>
Tensor<sizeof...(Size)> uninit(Size... size) {
  return Tensor<sizeof...(Size)>::from_shape({static_cast<std::size_t>(size)...});
}

// As uninit, all zeros.
template <class... Size>
Tensor<sizeof...(Size)> zeros(Size... size) {
  auto x = uninit(size...);
  x.fill(0.0f);
  return x;
}

// Length of an axis, as the int that loops count with.
template <std::size_t Rank>
int dim(const Tensor<Rank>& x, int axis) {
  return static_cast<int>(x.shape(axis));
}

// Address of x[t, ...], the start of a row of a Tensor2 or of a [heads, head_dim] block. (Do not
// count with x.strides(): xtensor sets the stride of an axis of length 1 to 0.)
template <std::size_t Rank>
float* row(Tensor<Rank>& x, int t) {
  return x.data() + static_cast<std::size_t>(t) * x.strides()[0];
}
template <std::size_t Rank>
const float* row(const Tensor<Rank>& x, int t) {
  return x.data() + static_cast<std::size_t>(t) * x.strides()[0];
}

// The same elements in the same order under another shape: reshape(std::move(x), T * H, D) takes
// x [T, H * D] to [T * H, D]. Nothing is copied; x is given away.
template <std::size_t Rank, class... Size>
Tensor<sizeof...(Size)> reshape(Tensor<Rank>&& x, Size... size) {
  using To = Tensor<sizeof...(Size)>;
  typename To::shape_type shape{static_cast<std::size_t>(size)...};
  typename To::strides_type strides;
  [[maybe_unused]] std::size_t count =
      xt::compute_strides(shape, xt::layout_type::row_major, strides);
  assert(count == x.size());
  return To(std::move(x.storage()), std::move(shape), std::move(strides));
}

}  // namespace qwen
