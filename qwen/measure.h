// Timing several things against each other, so that none is favoured: every round runs all of them
// once, in an order of its own, and a neighbour who slows the machine down slows all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace qwen {

// One run: how long each of its phases took, and a hash of what came out.
struct Run {
  std::vector<double> seconds;
  std::uint64_t hash = 0;
};

struct Contender {
  std::string name;  // for the progress shown
  std::function<Run()> run;
};

// The seconds of a call, as a run of one phase.
Run timed(const std::function<void()>& work);

// How often, and how long at most: a slow machine does fewer rounds, but two in any case.
struct Rounds {
  int count = 3;  // besides run 0
  double seconds = 1e9;
};

// result[i] are the runs of contender i, in order. Progress and time left go to stderr. After
// Ctrl-C, or where a run throws Interrupted, no more are begun.
std::vector<std::vector<Run>> measure(const std::string& title,
                                      const std::vector<Contender>& contenders, Rounds rounds);

// Run 0 stands apart: it pays for pages, caches and sleeping threads that the others find ready.
struct Summary {
  double first = 0;            // seconds of run 0; of several processes' run 0, the median
  double min = 0, median = 0;  // of the others; of run 0 where it is the only one
  int runs = 0;                // that min and median are taken from
  bool scattered = false;      // the median is more than 10 % above the minimum
  std::uint64_t hash = 0;
  bool same_hash = true;                     // in all runs
  std::vector<std::vector<double>> seconds;  // of every run: a list for each process, run 0 first
};
Summary summarise(const std::vector<Run>& runs, std::size_t phase = 0);

// The same for runs in several processes, each with a run 0 of its own.
Summary summarise_processes(const std::vector<std::vector<Run>>& processes, std::size_t phase = 0);

}  // namespace qwen
