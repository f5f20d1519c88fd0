// How fast this machine could be, measured: the two limits that every speed is compared with.
//
//   a step that needs B bytes and F operations takes at least B / bandwidth and F / peak
//
// Each probe does a known amount of work on the team's threads (parallel.h) and says how much it
// was; measure.h times it like everything else.
#pragma once

#include <cstddef>
#include <iterator>
#include <memory>

namespace qwen {

// Memory to be read, so large that no cache helps.
class ReadBlock {
 public:
  explicit ReadBlock(std::size_t bytes);
  const float* data() const { return data_.get(); }
  std::size_t size() const { return size_; }  // floats

 private:
  std::shared_ptr<float> data_;
  std::size_t size_;
};

// Four times the largest cache, at least 1 GiB, but not more than a quarter of the free memory.
std::size_t read_block_bytes(std::size_t largest_cache, std::size_t free_memory);

// Which order of reading is fastest differs between machines; the bandwidth is that of the best.
inline constexpr const char* kReadOrderNames[] = {
    "straight on", "straight on, 4 KB ahead asked for", "four streams side by side",
    "eight rows of a matrix side by side, the next eight asked for"};
inline constexpr int kReadOrders = std::size(kReadOrderNames);

// Reads all of the block in one of the orders 0 … kReadOrders - 1; returns the bytes.
double read_all(const ReadBlock& block, int order);

// Multiply-adds of floats in registers, for so short a time, some 0.2 ms, that one in a few runs is
// undisturbed even on a busy machine; returns the operations, two for a multiply-add.
double multiply_adds();

// The same with the dot product of bf16 pairs, which adds two products to a float: four
// operations a lane. Returns 0 where the CPU has no such instruction.
double bf16_dot_products();

}  // namespace qwen
