// Metadata of a GGUF file, by key and kind.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qwen/gguf_file.h"

namespace qwen {

// Nothing when the key is missing; std::runtime_error, one line naming it, when its value is of
// another kind. Integers of all widths are one kind and so are floats; an integer serves as a
// float, a single value as a list of one.
std::optional<std::int64_t> find_integer(const Gguf& gguf, const std::string& key);
std::optional<double> find_float(const Gguf& gguf, const std::string& key);
std::optional<bool> find_bool(const Gguf& gguf, const std::string& key);
std::optional<std::string> find_string(const Gguf& gguf, const std::string& key);
std::optional<std::vector<std::int64_t>> find_integers(const Gguf& gguf, const std::string& key);
std::optional<std::vector<double>> find_floats(const Gguf& gguf, const std::string& key);
std::optional<std::vector<std::string>> find_strings(const Gguf& gguf, const std::string& key);

}  // namespace qwen
