// How far long work has come, on stderr.
#pragma once

#include <cstddef>
#include <string>

#include "qwen/status_line.h"
#include "qwen/stopwatch.h"

namespace qwen {

// On a terminal one line that is written over and vanishes at the end; elsewhere a line for each
// stage.
class Progress {
 public:
  Progress(const std::string& title, std::size_t steps);

  // What comes next: "TITLE: STAGE, DETAIL, 12 s left", by the time the steps so far have taken.
  void show(const std::string& stage, const std::string& detail);
  void step() { ++done_; }

 private:
  const std::string title_;
  const std::size_t steps_;
  const Clock::time_point start_ = Clock::now();
  std::size_t done_ = 0;
  std::string stage_;
  StatusLine line_;
};

// "40 s", "12 min", "3 h 5 min"
std::string duration(double seconds);

}  // namespace qwen
