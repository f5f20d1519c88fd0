// What is in a checkpoint: its tensors by name, whatever kind of file they come from.
//
//   model.safetensors ─┐
//   …-00002-of-00003   ├─ mmap ─ Checkpoint: name → StoredTensor, a typed view into the map
//   model.gguf        ─┘
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "qwen/dtype.h"

namespace qwen {

// A tensor as a checkpoint lists it, under the name a text-only safetensors file would give it:
// "model.layers.0.mlp.up_proj.weight".
struct StoredTensor {
  std::string name;
  DType dtype;
  std::vector<std::size_t> shape;     // row-major, slowest axis first (GGUF writes them reversed)
  const std::byte* data;              // any alignment
  std::string file;                   // for messages
  std::shared_ptr<const void> owner;  // keeps the mapped file alive
};

// What safetensors and GGUF files store differently. Loading brings both to one form.
struct Conventions {
  bool norms_are_shifted = false;        // norm weights hold 1 + w already (qwen35 GGUF)
  bool A_is_exponential = false;         // A_log holds -exp(A_log) already (qwen35 GGUF)
  bool value_heads_are_tiled = false;    // value head h belongs to key head h % Hk (qwen35 GGUF)
  bool qk_rows_are_interleaved = false;  // q and k rows stand as RoPE pairs (llama GGUF)
};

struct Checkpoint {
  std::string path;                             // as opened
  std::map<std::string, StoredTensor> tensors;  // by name
  Conventions conventions;
  std::vector<std::string> remarks;  // worth telling the user, one line each
};

}  // namespace qwen
