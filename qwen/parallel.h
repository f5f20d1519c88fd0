// One team of threads for the whole program.
//
//   parallel_for(n, grain, body):  0 ├──grain──┼──grain──┼──grain──┼─┤ n
//
// A thread takes adjacent pieces, half of its share of those left, and computes them one after
// another: it walks through memory in long stretches at first, and at the end equally fast threads
// stop within about a piece of each other (a cautious form of the "guided self-scheduling" of
// Polychronopoulos and Kuck, 1987). One that loses its core keeps the others waiting for what it
// has taken.
//
// Which thread computes a piece never changes what is computed, so results do not depend on the
// number of threads. Work of one piece runs on the caller alone: waking a thread costs more than a
// small operator.
#pragma once

#include <functional>

namespace qwen {

// Calls body(begin, end) on pieces of at most `grain` that cover 0 … n once, on all threads of the
// team, and returns when the last has ended. Pieces start at multiples of grain. The first
// exception of a piece is thrown again here. A call from inside a piece, or from a second thread
// of the program while the team is busy, runs on its own thread alone.
void parallel_for(int n, int grain, const std::function<void(int begin, int end)>& body);

// Threads in the team, the caller included; may be asked from inside a piece. Until set:
// default_threads() of machine.h.
int thread_count();

// Starts or stops workers so that the team has n >= 1 threads; returns how many it got, fewer
// where the system refuses to start one. Not while a parallel_for runs.
int set_thread_count(int n);

}  // namespace qwen
