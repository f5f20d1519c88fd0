// What a user hands over: the text of a file, of a pipe, or of stdin.
#pragma once

#include <string>

namespace qwen {

// What messages call it: "stdin" for "-", else the path.
std::string name_of_input(const std::string& path);

// All of it; "-" is stdin. std::runtime_error that names it and the reason where it cannot be read,
// or where what is no file goes on for more than `most` bytes: a pipe may never end.
std::string read_input(const std::string& path, std::size_t most = std::size_t{256} << 20);

}  // namespace qwen
