// How a checkpoint wants its tokens to be chosen.
#pragma once

#include <string>

#include "qwen/sampler.h"

namespace qwen {

// What generation_config.json beside the checkpoint asks for, as the reference reads it: do_sample
// false or absent is greedy, whatever else stands there; a temperature that is absent is 1, a top_k
// 50. Greedy where there is no such file, and for GGUF. `path` as for open_checkpoint.
// std::runtime_error, one line, naming the key that is out of range.
Sampling read_sampling(const std::string& path);

}  // namespace qwen
