// Models that other programs have downloaded from the hub.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace qwen {

struct HubCache {
  std::optional<std::string> model;  // its snapshot's folder
  std::vector<std::string> remarks;  // what was passed over, and why
};

// The smallest Qwen3.5 checkpoint in the hub's cache ($HF_HUB_CACHE, else $HF_HOME/hub, else
// ~/.cache/huggingface/hub) of those that can be opened: downloads end halfway.
HubCache search_hub_cache();

}  // namespace qwen
