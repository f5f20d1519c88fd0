// Where the time goes: a table of operators with a stopwatch around each entry.
#pragma once

#include <map>
#include <string>

#include "qwen/ops.h"

namespace qwen {

struct Profile {
  struct Entry {
    double seconds = 0;
    long calls = 0;
    double bytes = 0;      // of weights read (linear) or of state read and written (delta_rule)
    double additions = 0;  // multiply-adds of linear
  };
  std::map<std::string, Entry> entries;  // by operator; linear also by which matrix
};

// A table that computes with `ops` and adds up what every entry takes in `profile`, which must
// outlive it.
Ops timed_ops(const Ops& ops, Profile& profile);

// The profile as lines, the largest first, with shares of `total_seconds`; what no operator
// accounts for stands last as "between operators".
std::string report(const Profile& profile, double total_seconds);

}  // namespace qwen
