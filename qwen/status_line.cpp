#include "qwen/status_line.h"

#include <unistd.h>

#include <cstdio>

namespace qwen {

StatusLine::StatusLine() : on_terminal_(isatty(STDERR_FILENO) != 0) {}

bool StatusLine::due() const {
  return seconds_since(shown_) >= (on_terminal_ ? 0.1 : 10);
}

void StatusLine::show(const std::string& text) {
  clear();
  std::fprintf(stderr, on_terminal_ ? "%s" : "%s\n", text.c_str());
  std::fflush(stderr);
  shown_ = Clock::now();
}

void StatusLine::clear() {
  if (on_terminal_) std::fprintf(stderr, "\r\033[K");
}

}  // namespace qwen
