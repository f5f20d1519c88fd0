// From a checkpoint on disk to a Model: every tensor finds its place, and none is left over.
#pragma once

#include <optional>
#include <string>

#include "qwen/model.h"

namespace qwen {

// Opens a checkpoint (see open_checkpoint) and names its parts. Matrices stay in the mapped file as
// they are stored, or are converted to `dtype` (F32, F16 or BF16); small parameters are copied as
// float32 and brought to one form, whatever the file's conventions. Tensors that text does not
// need (model.visual.*) are passed over, and mtp.* is left to chapter 14.
// std::runtime_error, one line, for a tensor that is missing, has another shape, or is left over.
Model load_model(const std::string& path, std::optional<DType> dtype = std::nullopt);

// The same for a checkpoint that is open already, with the config that belongs to it.
Model load_model(const Config& config, const Checkpoint& checkpoint,
                 std::optional<DType> dtype = std::nullopt);

// The same, part by part, for what stands beside the model (MTP, chapter 14): a layer whose
// tensors' names begin with `at`, a norm's scale [hidden_size], a matrix [rows, cols].
Layer load_layer(const Config& config, const Checkpoint& checkpoint, const std::string& at,
                 LayerType type, std::optional<DType> dtype);
Tensor1 load_norm(const Config& config, const Checkpoint& checkpoint, const std::string& name);
Weight load_matrix(const Checkpoint& checkpoint, const std::string& name, int rows, int cols,
                   std::optional<DType> dtype);

}  // namespace qwen
