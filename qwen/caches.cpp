#include "qwen/caches.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <utility>

#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace qwen {

#if defined(__linux__)

std::vector<Cache> caches(const std::string& root) {
  std::vector<Cache> found;
  for (int i = 0;; ++i) {
    const std::string at =
        root + "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i) + "/";
    std::string level, type, size;
    if (!(std::ifstream(at + "level") >> level)) return found;
    std::ifstream(at + "type") >> type;
    std::ifstream(at + "size") >> size;  // "2048K"
    if (type == "Instruction") continue;
    const std::size_t unit = size.ends_with("M") ? 1 << 20 : 1 << 10;
    found.push_back({"L" + level + (type == "Data" ? "d" : ""),
                     unit * std::strtoull(size.c_str(), nullptr, 10)});
  }
}

#elif defined(__APPLE__)

std::vector<Cache> caches(const std::string&) {
  std::vector<Cache> found;
  for (const auto& [name, key] :
       {std::pair{"L1d", "hw.perflevel0.l1dcachesize"},
        std::pair{"L2", "hw.perflevel0.l2cachesize"}, std::pair{"L3", "hw.l3cachesize"}}) {
    std::uint64_t bytes = 0;
    std::size_t size = sizeof bytes;
    if (sysctlbyname(key, &bytes, &size, nullptr, 0) == 0 && bytes > 0) {
      found.push_back({name, static_cast<std::size_t>(bytes)});
    }
  }
  return found;
}

#else

std::vector<Cache> caches(const std::string&) {
  return {};
}

#endif

std::size_t largest_cache(const std::vector<Cache>& caches) {
  std::size_t largest = 0;
  for (const Cache& cache : caches) largest = std::max(largest, cache.bytes);
  return largest;
}

std::size_t second_level_cache(const std::vector<Cache>& caches) {
  for (const Cache& cache : caches) {
    if (cache.name == "L2" && cache.bytes > 0) return cache.bytes;
  }
  return 1 << 20;
}

}  // namespace qwen
