// The caches of a CPU.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace qwen {

struct Cache {
  std::string name;  // "L1d", "L2", …
  std::size_t bytes;
};

// Those of the first CPU, not those for instructions; empty where the system does not say. `root`
// is where sys is looked for; another one than "" is for tests.
std::vector<Cache> caches(const std::string& root = "");

std::size_t largest_cache(const std::vector<Cache>& caches);       // bytes; 0 for none
std::size_t second_level_cache(const std::vector<Cache>& caches);  // bytes; 1 MiB if not known

}  // namespace qwen
