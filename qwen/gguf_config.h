// Config from the metadata of a GGUF file.
#pragma once

#include <string>

#include "qwen/config.h"

namespace qwen {

// Sizes come from metadata ("qwen35.embedding_length", …); what the blocks are, how many there are
// and whether the head is tied, from the tensors. std::runtime_error, one line, naming the key that
// is missing or out of range.
Config read_gguf_config(const std::string& path);

}  // namespace qwen
