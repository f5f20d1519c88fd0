// What the path of a model leads to. Its first bytes tell, and not its name: files in caches are
// named by their hashes.
#pragma once

#include <string>

namespace qwen {

enum class CheckpointKind { directory, safetensors, gguf };

// std::runtime_error, one line, for what is none of them, or cannot be read.
CheckpointKind checkpoint_kind(const std::string& path);

// Where the small files of a checkpoint stand (config.json, a tokenizer): in the directory itself,
// or beside the file.
std::string checkpoint_folder(const std::string& path);

}  // namespace qwen
