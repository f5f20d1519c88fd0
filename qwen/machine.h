// What this process may use of the machine.
#pragma once

#include <string>

namespace qwen {

// How many threads to use when nobody says: the smallest of the physical cores (performance cores
// where there are two kinds), the CPUs this process is allowed to run on, and the CPU quotas of
// its control group and of every group above it (cgroup v2), rounded down; at least 1.
struct DefaultThreads {
  int count;
  std::string reason;  // "2 physical cores", "a CPU quota of 7.65", …
};

// `root` is where proc and sys are looked for; another one than "" is for tests.
DefaultThreads default_threads(const std::string& root = "");

// "AMD EPYC 9B14", as the system calls it.
std::string cpu_name();

}  // namespace qwen
