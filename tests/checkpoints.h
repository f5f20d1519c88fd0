// Small checkpoints taken apart, changed, and written again: with other bytes, in another layout,
// or broken.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/support.h"

namespace qwen {

struct CheckpointParts {
  struct Part {
    std::string name, dtype;
    std::vector<std::size_t> shape;
    std::string bytes;
  };
  std::string config;  // config.json
  std::vector<Part> tensors;

  Part& at(const std::string& name);
  void erase(const std::string& name);
  // Sets the number at `index` of a tensor stored as F32.
  void set(const std::string& name, std::size_t index, float value);
  // Replaces text in the config; it must be there.
  void replace_in_config(const std::string& from, const std::string& to);
};

// checkpoints/NAME, a single file.
CheckpointParts take_apart(const std::string& name);

// Writes config.json and one model.safetensors with `spaces` behind its header, so that the data
// can be brought to any address. Returns the folder.
std::string write_checkpoint(const TempDir& folder, const CheckpointParts& parts, int spaces = 0);

// The same tensors dealt out to several files, with an index.
std::string write_shards(const TempDir& folder, const CheckpointParts& parts, int shards);

}  // namespace qwen
