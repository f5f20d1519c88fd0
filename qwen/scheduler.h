// Who runs and who waits: requests are admitted in order, as long as all they may come to remember
// fits into a budget of memory.
//
//   submit ─ waiting ─ admitted while there is room ─ batch ─ answered
//
// Room is counted at the largest a sequence can become. So whoever has begun can finish: nobody has
// to be sent back because the others have grown.
#pragma once

#include <deque>

#include "qwen/batch.h"

namespace qwen {

struct BatchLimits {
  std::size_t bytes = std::size_t{1} << 30;  // of state, that of all sequences together
  int sequences = 32;                        // at once
  int rows = 128;                            // in one step; not less than sequences
};

struct Waiting {
  int number = 0;
  Request request;
};

struct Scheduler {
  BatchLimits limits;
  std::deque<Waiting> waiting;
  Batch batch;
};

// std::invalid_argument, one line, unless each is at least 1 and there is a row for every sequence.
void check_limits(const BatchLimits& limits);

// Puts a request at the end of the queue. std::invalid_argument, one line, for one that start()
// refuses, or that does not fit into the budget even alone; it is not queued then.
void submit(const Config& config, Scheduler& scheduler, int number, Request request);

// Admits who has room, then one step of the batch. Returns those whose answers have ended.
std::vector<Running> step(const Model& model, const Ops& ops, Scheduler& scheduler);

// Whether anything is left to do.
bool busy(const Scheduler& scheduler);

// Bytes of state held by all that run.
std::size_t bytes_held(const Batch& batch);

}  // namespace qwen
