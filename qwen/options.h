// The options of every program that runs a model.
#pragma once

#include <optional>
#include <string>

#include "qwen/load.h"
#include "qwen/program.h"

namespace qwen {

struct ModelOptions {
  std::string model;
  std::string dtype;  // empty: as stored
  int threads = 0;    // 0: default_threads()
};

// --model PATH, --dtype f32|f16|bf16 and --threads N.
void add_model_options(CLI::App& app, ModelOptions& options);

// What --dtype asks for; nothing: as stored.
std::optional<DType> chosen_dtype(const ModelOptions& options);

// Sets the team to the threads asked for and loads the model. What is worth knowing (how many
// threads and why, remarks on the checkpoint) goes to stderr.
Model open_model(const ModelOptions& options);

}  // namespace qwen
