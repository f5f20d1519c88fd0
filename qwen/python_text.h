// Values as Python writes them. Chat templates run in Python: what they make of a number, a list or
// white space is what the model was trained on.
#pragma once

#include <string>
#include <string_view>

#include "qwen/json.h"

namespace qwen {

// str.strip(): white space, and U+001C to U+001F, off both ends.
std::string_view strip(std::string_view text);

// str(): True, None, 1e+20; a text as it is. Of scalars only.
std::string python_str(const OrderedJson& scalar);

// json.dumps(ensure_ascii=False): ", " and ": " between, keys in the order they came in.
std::string python_json(const OrderedJson& value);

// repr() of a float: the fewest digits that give the number back; with an exponent below 1e-4 and
// from 1e16 on.
std::string python_float(double value);

}  // namespace qwen
