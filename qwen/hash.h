// A hash over what comes out, one value after the other (FNV-1a): two texts with the same hash are
// the same.
#pragma once

#include <cstdint>

namespace qwen {

inline constexpr std::uint64_t kHashOfNothing = 0xCBF29CE484222325;

inline std::uint64_t hash_with(std::uint64_t hash, std::uint64_t value) {
  return (hash ^ value) * 0x100000001B3;
}

}  // namespace qwen
