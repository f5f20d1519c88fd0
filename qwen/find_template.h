// Which chat template a checkpoint comes with.
#pragma once

#include <string>
#include <vector>

#include "qwen/chat_template.h"
#include "qwen/config.h"

namespace qwen {

struct FoundTemplate {
  ChatTemplate form;
  std::vector<std::string> remarks;  // worth telling the user
};

// Recognises the template in chat_template.jinja or tokenizer_config.json beside the weights, or in
// the metadata of a GGUF file. One that is not known, and its absence, is remarked: then plain
// ChatML is used, and for models of Qwen3.5's kind without any its own template.
FoundTemplate find_template(const std::string& path, const Config& config);

// The same from the template's text.
FoundTemplate recognise_template(const std::string& jinja, const Config& config);

}  // namespace qwen
