#include "qwen/locate.h"

#include <cstdlib>
#include <filesystem>

namespace qwen {

std::string default_model() {
  const char* chosen = std::getenv("QWEN_MODEL");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  const std::filesystem::path sources = QWEN_SOURCE_DIR;
  const auto built_in = sources / "models/tiny";
  const auto random = sources / "tests/data/checkpoints/tiny";
  return std::filesystem::proximate(std::filesystem::exists(built_in) ? built_in : random).string();
}

}  // namespace qwen
