// Text of others in messages. Names in files, paths and arguments may hold anything: a newline
// would make two lines of one, an escape would command the terminal.
#pragma once

#include <string>
#include <string_view>

namespace qwen {

// The text on one line: its control characters are written as \n, \t or \x1b.
std::string on_one_line(std::string_view text);

// A text that a message names: on one line, in quotes, cut where it is long.
std::string in_quotes(std::string_view text);

}  // namespace qwen
