// Weights: matrices that stay where they are, and how a checkpoint is opened to find them.
//
//   open_checkpoint ─ StoredTensor ─┬─ matrices: Weight, a typed view into the mapped file
//                     by name       └─ small parameters: Tensor1, copied as float32
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "qwen/checkpoint.h"
#include "qwen/tensor.h"

namespace qwen {

// A matrix [rows, cols], row-major, in the type it was stored in. A row of a block format is a
// whole number of blocks. Copying a Weight copies the view.
struct Weight {
  DType dtype = DType::F32;
  int rows = 0;
  int cols = 0;
  const std::byte* data = nullptr;  // any alignment
  // Row n of the matrix is the order[n]-th of the file; empty: the n-th. (llama.cpp stores the
  // rows of q_proj and k_proj in another order; they are read through this map, not rewritten.)
  std::shared_ptr<const std::vector<int>> order;
  std::shared_ptr<const void> owner;  // keeps the mapped file, or a converted copy, alive
  std::string name;                   // for messages
};

inline std::size_t row_bytes(const Weight& w) {
  return stored_bytes(w.dtype, static_cast<std::size_t>(w.cols));
}
// `length` is row_bytes(w), for whoever asks for many rows.
inline const std::byte* row(const Weight& w, int n, std::size_t length) {
  return w.data + length * static_cast<std::size_t>(w.order ? (*w.order)[n] : n);
}
inline const std::byte* row(const Weight& w, int n) {
  return row(w, n, row_bytes(w));
}
inline std::size_t bytes(const Weight& w) {
  return row_bytes(w) * w.rows;
}

// The same matrix in another type (F32, F16 or BF16), in memory of its own. The matrix itself
// where it has that type already.
Weight convert(const Weight& w, DType dtype);

// Maps a checkpoint: a directory (with model.safetensors, or model.safetensors.index.json and its
// shards), one safetensors file, or one GGUF file, told by their first bytes. Every header is
// checked against the file it describes; nothing else is read. std::runtime_error, one line, for a
// bad file.
Checkpoint open_checkpoint(const std::string& path);

// The tensor of that name. std::runtime_error when it is missing.
const StoredTensor& find(const Checkpoint& checkpoint, const std::string& name);

// The tensor as a matrix; its shape must be [rows, cols].
Weight matrix(const Checkpoint& checkpoint, const std::string& name, int rows, int cols);

// The tensor's elements as floats, whatever its type; its shape must be the given one.
Tensor1 vector(const Checkpoint& checkpoint, const std::string& name,
               std::initializer_list<int> shape);

}  // namespace qwen
