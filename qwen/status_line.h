// What a long run is doing: on a terminal one line of stderr that is written over, elsewhere a new
// line every ten seconds.
#pragma once

#include <string>

#include "qwen/stopwatch.h"

namespace qwen {

class StatusLine {
 public:
  StatusLine();
  ~StatusLine() { clear(); }

  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  bool on_terminal() const { return on_terminal_; }
  // Whether the last text is old enough for a new one.
  bool due() const;
  void show(const std::string& text);
  // Takes the line away: before anything else is printed.
  void clear();

 private:
  const bool on_terminal_;
  Clock::time_point shown_ = Clock::now();
};

}  // namespace qwen
