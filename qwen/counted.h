// A count with its noun, as sentences have it.
#pragma once

#include <string>

namespace qwen {

// "1 token", "2 tokens".
inline std::string counted(long long count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace qwen
