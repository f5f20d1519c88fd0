// Models that other programs have downloaded from the hub.
#pragma once

#include <optional>
#include <string>

namespace qwen {

// A Qwen3.5 checkpoint in the hub's cache ($HF_HUB_CACHE, else $HF_HOME/hub, else
// ~/.cache/huggingface/hub), the smallest of those that are complete: its snapshot's folder.
std::optional<std::string> qwen_in_hub_cache();

}  // namespace qwen
