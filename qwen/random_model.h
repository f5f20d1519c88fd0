// A model of a given shape with random weights. How fast a model runs, and whether two ways of
// running it agree, does not depend on what the weights say; so neither needs a download.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qwen/checkpoint.h"
#include "qwen/model.h"

namespace qwen {

// The shapes known by name: "qwen3.5-0.8b", "smollm2-135m", and "tiny", a Qwen3.5 of a few hundred
// thousand parameters whose dimensions all differ.
std::vector<std::string> shape_names();
Config named_shape(const std::string& name);  // std::invalid_argument for an unknown one

struct RandomModel {
  Model model;
  std::vector<StoredTensor> tensors;  // what it is made of, as a checkpoint stores it, and mtp.*
};

// Matrices are drawn from a bell curve of variance 1 / cols, so that values keep their size from
// layer to layer; every norm is near 1; DeltaNet heads keep 0.5 … 0.9995 of S per token. A number
// depends on the seed, the tensor's name and its place in it alone, and small parameters are bf16
// numbers: so models of two dtypes differ by the rounding of their matrices and nothing else.
// dtype is F32, F16 or BF16. All threads work on it.
RandomModel random_model(const Config& config, DType dtype, std::uint64_t seed = 0);

// Its tensors as if they lay in a file, for what is loaded beside the model (mtp.h).
Checkpoint checkpoint_of(const RandomModel& random);

}  // namespace qwen
