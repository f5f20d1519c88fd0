// The GGUF format: metadata and tensors of a model in one file. Little endian throughout.
//
//   "GGUF"  version u32 (2 or 3)  number of tensors u64  number of metadata entries u64
//   metadata   key, type u32, value, …           "llama.block_count", 4 (u32), 30
//   tensors    name, rank u32, shape u64s, type u32, offset u64, …
//   padding to a multiple of general.alignment (32 where that key is missing)
//   the tensors' bytes; offsets count from here
//
// A string is its length (u64) and its bytes; an array is its element type (u32), its length (u64)
// and its elements. A shape starts with the axis that is contiguous in memory: [cols, rows].
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "qwen/dtype.h"

namespace qwen {

// Types of metadata, by the numbers the file gives them.
enum class GgufType : std::uint32_t {
  U8,
  I8,
  U16,
  I16,
  U32,
  I32,
  F32,
  Bool,
  String,
  Array,
  U64,
  I64,
  F64,
};

// A metadata value, still as the bytes of the file: a list of 250,000 tokens costs nothing until
// it is asked for.
struct GgufValue {
  GgufType type;  // of the elements, where it is an array
  bool is_array = false;
  std::uint64_t count = 1;  // elements
  const std::byte* data = nullptr;
};

struct GgufTensor {
  std::string name;                // as in the file: "blk.0.attn_q.weight"
  std::uint32_t type;              // as in the file
  std::vector<std::size_t> shape;  // row-major, slowest axis first: the file's, reversed
  const std::byte* data;           // any alignment
};

struct Gguf {
  std::string path;
  std::map<std::string, GgufValue> metadata;
  std::vector<GgufTensor> tensors;
  std::shared_ptr<const void> owner;  // keeps the mapped file alive
};

// Maps a file and reads its header. Every length is checked against the bytes that are there before
// anything is done with it, and so is every tensor whose format we know. std::runtime_error, one
// line, for a file that is not whole, well-formed GGUF.
Gguf read_gguf(const std::string& path);

std::string type_name(const GgufValue& value);  // for messages: "U32", "an array of String"

// The tensor's format; nothing where it is one of those we do not read.
std::optional<DType> dtype_of(const GgufTensor& tensor);
std::string type_name(const GgufTensor& tensor);  // for messages: "IQ4_XS", "type 77"

}  // namespace qwen
