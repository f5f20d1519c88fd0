#include "qwen/weights.h"

#include <filesystem>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "qwen/checkpoint_kind.h"
#include "qwen/file.h"
#include "qwen/gguf.h"
#include "qwen/safetensors.h"

namespace qwen {
namespace {

namespace fs = std::filesystem;

// A directory holds one file or an index of shards; the single file is the one taken, as the
// reference does.
Checkpoint open_directory(const std::string& directory) {
  const std::string single = (fs::path(directory) / "model.safetensors").string();
  if (exists(single)) return open_safetensors(single);
  const std::string index = (fs::path(directory) / "model.safetensors.index.json").string();
  if (exists(index)) return open_safetensors_index(index);
  throw std::runtime_error(directory +
                           ": found neither model.safetensors nor model.safetensors.index.json; a "
                           "GGUF file is named itself, not its directory");
}

std::string bracketed(const std::vector<std::size_t>& shape) {
  std::string text;
  for (const std::size_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

[[noreturn]] void fail_shape(const StoredTensor& tensor, const std::string& expected) {
  throw std::runtime_error(tensor.file + ": " + tensor.name + " is " + bracketed(tensor.shape) +
                           ", expected " + expected);
}

std::size_t count(const StoredTensor& tensor) {
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::size_t{1},
                         std::multiplies<>());
}

}  // namespace

Checkpoint open_checkpoint(const std::string& path) {
  switch (checkpoint_kind(path)) {
    case CheckpointKind::directory:
      return open_directory(path);
    case CheckpointKind::safetensors:
      return open_safetensors(path);
    default:
      return open_gguf(path);
  }
}

const StoredTensor& find(const Checkpoint& checkpoint, const std::string& name) {
  const auto found = checkpoint.tensors.find(name);
  if (found == checkpoint.tensors.end()) {
    throw std::runtime_error(checkpoint.path + ": tensor " + name + " is missing");
  }
  return found->second;
}

Weight matrix(const Checkpoint& checkpoint, const std::string& name, int rows, int cols) {
  const StoredTensor& tensor = find(checkpoint, name);
  const std::vector<std::size_t> expected = {static_cast<std::size_t>(rows),
                                             static_cast<std::size_t>(cols)};
  if (tensor.shape != expected) fail_shape(tensor, bracketed(expected));
  return {tensor.dtype, rows, cols, tensor.data, nullptr, tensor.owner, name};
}

Tensor1 vector(const Checkpoint& checkpoint, const std::string& name,
               std::initializer_list<int> shape) {
  const StoredTensor& tensor = find(checkpoint, name);
  const std::vector<std::size_t> expected(shape.begin(), shape.end());
  if (tensor.shape != expected) fail_shape(tensor, bracketed(expected));
  Tensor1 values = uninit(count(tensor));
  to_float(tensor.dtype, tensor.data, values.size(), values.data());
  return values;
}

Weight convert(const Weight& w, DType dtype) {
  if (w.dtype == dtype) return w;
  Weight result = w;
  result.dtype = dtype;
  result.order = nullptr;  // the copy's rows stand in the order they are read in
  const auto copy = lasting_block(bytes(result));
  std::vector<float> values(static_cast<std::size_t>(w.cols));
  for (int n = 0; n < w.rows; ++n) {
    to_float(w.dtype, row(w, n), values.size(), values.data());
    from_float(values.data(), values.size(), dtype, copy.get() + row_bytes(result) * n);
  }
  result.data = copy.get();
  result.owner = copy;
  return result;
}

}  // namespace qwen
