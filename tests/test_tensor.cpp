#include <unistd.h>

#include <fstream>
#include <vector>

#include "qwen/tensor.h"
#include "tests/support.h"

using namespace qwen;

TEST_CASE("tensor: a large block that came back serves the next tensor of about its size") {
  const std::size_t bytes = 1 << 20;
  void* first = take_block(bytes);
  return_block(first, bytes);
  void* second = take_block(bytes - 1000);
  CHECK(second == first);
  return_block(second, bytes - 1000);
}

#if defined(__linux__)

namespace {

// Pages that this process has a right to, touched or not.
std::size_t address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

TEST_CASE("tensor: of what comes back the system gets all but 256 MiB") {
  constexpr std::size_t kMiB = 1 << 20;
  const std::size_t before = address_space();
  std::vector<void*> blocks;
  for (int i = 0; i < 32; ++i) blocks.push_back(take_block(64 * kMiB));
  CHECK(address_space() > before + 2000 * kMiB);
  for (void* block : blocks) return_block(block, 64 * kMiB);
  CHECK(address_space() < before + 600 * kMiB);  // a sanitizer keeps as much again to itself
  // The largest is not kept at all, and costs none of the others its place.
  void* kept = take_block(64 * kMiB);
  return_block(kept, 64 * kMiB);
  return_block(take_block(512 * kMiB), 512 * kMiB);
  CHECK(take_block(64 * kMiB) == kept);
  return_block(kept, 64 * kMiB);
}

#endif
