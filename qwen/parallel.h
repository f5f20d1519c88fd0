// One team of threads for the whole program.
//
//   parallel_for(n, grain, body):  0 ├──grain──┼──grain──┼──grain──┼─┤ n
//                                     threads take the next piece until none is left
//
// Which thread computes a piece never changes what is computed, so the results do not depend on
// the number of threads. Work smaller than one piece runs on the caller alone: waking a thread
// costs more than a small operator.
#pragma once

#include <functional>
#include <string>

namespace qwen {

// Calls body(begin, end) on pieces of at most `grain` that cover 0 … n once, on all threads of the
// team, and returns when the last has ended. Pieces start at multiples of grain. The first
// exception of a piece is thrown again here. A call from inside a piece runs on that thread alone.
void parallel_for(int n, int grain, const std::function<void(int begin, int end)>& body);

// Threads in the team, the caller included.
int thread_count();

// Starts or stops workers so that the team has n threads, and returns how many it got (fewer where
// the system refuses to start one). n >= 1. Not while a parallel_for runs.
int set_thread_count(int n);

// What the team starts with: the smallest of the physical cores (performance cores where there are
// two kinds), the CPUs this process may use, and the CPU quota of its control groups rounded
// down; at least 1. `reason` says which it was, for the reader.
struct DefaultThreads {
  int count;
  std::string reason;
};
DefaultThreads default_threads();

}  // namespace qwen
