// The part `threads`: how many threads are best, and where more of them lose.
#pragma once

#include "qwen/speed.h"

namespace qwen {

// Teams to try: 1, 2, 4, … up to the cores, the logical CPUs, and twice the cores, which is too
// many.
std::vector<int> teams_to_try(int cores, int logical_cpus);

std::string threads_part(Speed& speed);

}  // namespace qwen
