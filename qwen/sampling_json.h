// Settings of the sampler as JSON: {"temperature": 0.7, "top_k": 20, …}.
#pragma once

#include <string>

#include "qwen/json.h"
#include "qwen/sampler.h"

namespace qwen {

OrderedJson to_json(const Sampling& sampling);

// Sets what the object has. std::runtime_error for what is no number, or no seed as --seed takes
// it.
void take_sampling(const JsonObject& object, Sampling& sampling);

// What is missing has the value that changes nothing. std::runtime_error, one line that names
// `source` and the key that is out of range.
Sampling sampling_from_json(const OrderedJson& json, const std::string& source);

}  // namespace qwen
