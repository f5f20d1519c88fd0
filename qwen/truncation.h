// A mapped file that another program cuts off while it is read. Its pages are gone then, and the
// system ends whoever touches one of them by SIGBUS, without a word.
#pragma once

#include <cstddef>
#include <string>

namespace qwen {

// From now on the program ends with `line` on stderr and exit status 1 when it touches a page of
// this mapping that is gone. Any other SIGBUS does what it did before.
void watch_mapping(const std::byte* begin, std::size_t size, std::string line);

// Before it is unmapped.
void forget_mapping(const std::byte* begin);

}  // namespace qwen
