// Config from config.json and generation_config.json.
#pragma once

#include <string>

#include "qwen/config.h"

namespace qwen {

// Reads both files of a checkpoint's directory; the second need not be there. A key means what it
// means to the reference's config classes, defaults included. std::runtime_error, one line, naming
// the key that is missing, unknown or out of range.
Config read_config_json(const std::string& directory);

}  // namespace qwen
