// How long steps of a batch take, by who is in it. What the tokens say does not matter.
#pragma once

#include "qwen/batch.h"

namespace qwen {

// `count` sequences that have read `length` tokens each and have one more to read.
Batch writers(const Model& model, const Ops& ops, int count, int length);

// Seconds of a step in which each of `count` sequences reads its last token; the shortest of
// `steps`. The choice of the next tokens is not counted.
double write_seconds(const Model& model, const Ops& ops, int count, int steps);

// A prompt of `length` tokens joins `count` sequences that write, at most max_rows a step.
struct Joining {
  int steps = 0;               // until the prompt is read
  double seconds = 0;          // of all of them
  double longest_seconds = 0;  // of one: so long the others wait for a token
};
Joining join_seconds(const Model& model, const Ops& ops, int count, int length, int max_rows);

}  // namespace qwen
