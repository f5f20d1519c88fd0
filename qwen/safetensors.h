// The safetensors format: a JSON header that lists tensors, then their bytes.
//
//   8 bytes  N, little endian
//   N bytes  {"name":{"dtype":"BF16","shape":[3,5],"data_offsets":[0,30]}, …}
//   the rest the tensors, one after the other; offsets count from here
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "qwen/checkpoint.h"

namespace qwen {

// One line of a header, of any type the format knows.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;               // as written: "F32", "BF16", "I64", …
  std::vector<std::size_t> shape;  // row-major, slowest axis first
  std::size_t begin, end;          // bytes of the data section: data_offsets
};

struct SafetensorsFile {
  std::string path;
  std::vector<SafetensorsEntry> entries;  // in the order of their bytes
  const std::byte* data;                  // the data section, at any alignment
  std::shared_ptr<const void> owner;      // keeps the mapped file alive
};

// Maps one file and checks its header against it: every byte of the data section belongs to
// exactly one tensor. std::runtime_error, one line, otherwise.
SafetensorsFile read_safetensors(const std::string& path);

// The tensors of one file, or of all the shards that model.safetensors.index.json names. Text
// needs F32, F16 or BF16: any other type outside model.visual is an error.
Checkpoint open_safetensors(const std::string& path);
Checkpoint open_safetensors_index(const std::string& path);

}  // namespace qwen
