#include "tests/planted.h"

namespace qwen {

const std::vector<PlantedBug>& planted_bugs() {
  static const std::vector<PlantedBug> all = [] {
    std::vector<PlantedBug> bugs;
    for (const auto& some : {norm_bugs(), attention_bugs(), deltanet_bugs(), order_bugs()}) {
      bugs.insert(bugs.end(), some.begin(), some.end());
    }
    return bugs;
  }();
  return all;
}

}  // namespace qwen
