// Another program, run to its end.
#pragma once

#include <string>
#include <vector>

namespace qwen {

// The path of the program that is running.
std::string own_path();

// Runs a program with its arguments and waits for its end; what it prints is thrown away.
// std::runtime_error with the last line of its stderr where it fails or cannot be started. After
// Ctrl-C the program is ended, and Interrupted thrown.
void run_process(const std::vector<std::string>& command);

}  // namespace qwen
