// From tensors in memory to a checkpoint on disk, as the ecosystem reads it.
#pragma once

#include <string>
#include <vector>

#include "qwen/checkpoint.h"
#include "qwen/config.h"

namespace qwen {

// Writes config.json, generation_config.json and model.safetensors into a new folder. It appears
// under its name when all of it is there, so nobody ever reads half a checkpoint.
// std::runtime_error, one line, where it exists already or cannot be written.
void save_checkpoint(const Config& config, const std::vector<StoredTensor>& tensors,
                     const std::string& directory);

}  // namespace qwen
