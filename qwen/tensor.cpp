#include "qwen/tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

namespace qwen {
namespace {

constexpr std::size_t kCacheLine = 64;
// Below this the C library's own lists are as fast, and nothing is returned to the system anyway.
constexpr std::size_t kRecycledFrom = 128 * 1024;

// Returned blocks by size class. Four classes for every doubling (1, 1.25, 1.5, 1.75): at most a
// quarter of a block is unused, and a prompt one token longer still finds its blocks.
struct Shelf {
  std::mutex mutex;
  std::array<std::vector<void*>, 4 * 64> returned;
};

// Never destroyed: tensors with static lifetime may come back after main has ended.
Shelf& shelf() {
  static Shelf* only = new Shelf;
  return *only;
}

struct SizeClass {
  std::size_t index;
  std::size_t bytes;
};

SizeClass size_class(std::size_t bytes) {
  const std::size_t power = static_cast<std::size_t>(std::bit_width(bytes - 1)) - 1;
  const std::size_t step = std::size_t{1} << (power - 2);
  const std::size_t quarters = (bytes + step - 1) / step;  // 5 to 8 of them
  return {4 * power + quarters - 5, quarters * step};
}

// From here on a block lies on pages of 2 MiB where the system has them. The processor remembers
// where some 2,000 pages are: of 4 KiB, those are 8 MB, of a model of 1,500.
constexpr std::size_t kHugePage = 2 << 20, kHugeFrom = 2 * kHugePage;

void* allocate(std::size_t bytes) {
  const std::size_t unit = bytes < kHugeFrom ? kCacheLine : kHugePage;
  const std::size_t whole = (std::max<std::size_t>(bytes, 1) + unit - 1) / unit * unit;
  void* block = std::aligned_alloc(unit, whole);
  if (block == nullptr) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
  if (unit == kHugePage) madvise(block, whole, MADV_HUGEPAGE);  // a wish; nothing lost if refused
#endif
  return block;
}

}  // namespace

void* take_block(std::size_t bytes) {
  if (bytes < kRecycledFrom) return allocate(bytes);
  const SizeClass size = size_class(bytes);
  {
    std::lock_guard lock(shelf().mutex);
    std::vector<void*>& blocks = shelf().returned[size.index];
    if (!blocks.empty()) {
      void* block = blocks.back();
      blocks.pop_back();
      return block;
    }
  }
  return allocate(size.bytes);
}

void return_block(void* block, std::size_t bytes) noexcept {
  if (bytes < kRecycledFrom) return std::free(block);
  std::lock_guard lock(shelf().mutex);
  shelf().returned[size_class(bytes).index].push_back(block);
}

std::shared_ptr<std::byte> lasting_block(std::size_t bytes) {
  return {static_cast<std::byte*>(allocate(bytes)), std::free};
}

}  // namespace qwen
