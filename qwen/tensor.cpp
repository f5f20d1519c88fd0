#include "qwen/tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <new>
#include <vector>

namespace qwen {
namespace {

constexpr std::size_t kCacheLine = 64;
// Below this the C library's own lists are as fast, and nothing is returned to the system anyway.
constexpr std::size_t kRecycledFrom = 128 * 1024;

// What is kept at most, of all sizes together. Reading 512 tokens at once, Qwen3.5-0.8B uses 70 MB
// of such blocks, the same ones in every layer. What many texts leave behind goes back to the
// system.
constexpr std::size_t kMostKept = 256 << 20;

struct Kept {
  void* block;
  std::size_t bytes;
};

// Returned blocks, the latest last. There is room for as many as can be kept: taking a block back
// needs no memory.
struct Shelf {
  std::mutex mutex;
  std::vector<Kept> kept;
  std::size_t bytes = 0;  // of them all

  Shelf() { kept.reserve(kMostKept / kRecycledFrom); }
};

// Never destroyed: tensors with static lifetime may come back after main has ended.
Shelf& shelf() {
  static Shelf* only = new Shelf;
  return *only;
}

// Blocks have four sizes for every doubling (1, 1.25, 1.5, 1.75): at most a quarter of a block is
// unused, and a prompt one token longer still finds its blocks.
std::size_t block_size(std::size_t bytes) {
  const std::size_t power = static_cast<std::size_t>(std::bit_width(bytes - 1)) - 1;
  const std::size_t step = std::size_t{1} << (power - 2);
  return (bytes + step - 1) / step * step;
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
  const std::size_t size = block_size(bytes);
  {
    Shelf& from = shelf();
    std::lock_guard lock(from.mutex);
    const auto fits = [&](const Kept& kept) { return kept.bytes == size; };
    const auto found = std::find_if(from.kept.rbegin(), from.kept.rend(), fits);
    if (found != from.kept.rend()) {
      void* block = found->block;
      from.kept.erase(std::next(found).base());
      from.bytes -= size;
      return block;
    }
  }
  return allocate(size);
}

void return_block(void* block, std::size_t bytes) noexcept {
  if (bytes < kRecycledFrom) return std::free(block);
  const std::size_t size = block_size(bytes);
  if (size > kMostKept) return std::free(block);
  Shelf& to = shelf();
  std::lock_guard lock(to.mutex);
  // Those go that nobody has asked for the longest.
  auto oldest = to.kept.begin();
  for (; to.bytes + size > kMostKept; ++oldest) {
    std::free(oldest->block);
    to.bytes -= oldest->bytes;
  }
  to.kept.erase(to.kept.begin(), oldest);
  to.kept.push_back({block, size});
  to.bytes += size;
}

std::shared_ptr<std::byte> lasting_block(std::size_t bytes) {
  return {static_cast<std::byte*>(allocate(bytes)), std::free};
}

}  // namespace qwen
