// Another program, run to its end.
#pragma once

#include <string>
#include <vector>

namespace qwen {

// The path of the program that is running.
std::string own_path();

// Runs a program with its arguments, waits for its end and returns what it has printed.
// std::runtime_error with the last line of its stderr where it fails or cannot be started. After
// Ctrl-C the program is ended, and Interrupted thrown. Its stdin is a pipe that is closed when this
// program is no more, even if it was killed.
std::string run_process(const std::vector<std::string>& command);

// For the program that was started so: ends it, too, when its stdin is closed.
void end_with_parent();

}  // namespace qwen
