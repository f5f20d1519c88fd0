// How far long work has come, on stderr.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace qwen {

// On a terminal one line that is written over and vanishes at the end; elsewhere a line for each
// stage.
class Progress {
 public:
  Progress(const std::string& title, std::size_t steps);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // What comes next: "TITLE: STAGE, DETAIL, 12 s left", by the time the steps so far have taken.
  void show(const std::string& stage, const std::string& detail);
  void step() { ++done_; }

 private:
  const std::string title_;
  const std::size_t steps_;
  const bool on_terminal_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::size_t done_ = 0;
  std::string stage_;
};

// "40 s", "12 min", "3 h 5 min"
std::string duration(double seconds);

}  // namespace qwen
