// What a long run is doing: on a terminal one line of stderr that is written over, elsewhere a new
// line every ten seconds.
#pragma once

#include <chrono>
#include <string>

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
  std::chrono::steady_clock::time_point shown_ = std::chrono::steady_clock::now();
};

}  // namespace qwen
