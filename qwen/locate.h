// Which checkpoint a program takes when it is not told.
#pragma once

#include <string>

namespace qwen {

// $QWEN_MODEL where it is set, else the built-in model, models/tiny, else the small random
// checkpoint of the tests. The last two are found whatever folder the program is started in.
std::string default_model();

}  // namespace qwen
