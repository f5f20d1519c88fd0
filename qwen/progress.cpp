#include "qwen/progress.h"

#include <cmath>

namespace qwen {

Progress::Progress(const std::string& title, std::size_t steps) : title_(title), steps_(steps) {}

void Progress::show(const std::string& stage, const std::string& detail) {
  if (!line_.on_terminal() && stage == stage_) return;
  stage_ = stage;
  std::string line = title_ + ": " + stage;
  if (line_.on_terminal()) line += ", " + detail;
  if (done_ > 0) {
    const double each = seconds_since(start_) / static_cast<double>(done_);
    line += ", " + duration(each * static_cast<double>(steps_ - done_)) + " left";
  }
  line_.show(line);
}

std::string duration(double seconds) {
  const long whole = std::lround(seconds), minutes = std::lround(seconds / 60);
  if (whole < 100) return std::to_string(whole) + " s";
  if (minutes < 100) return std::to_string(minutes) + " min";
  return std::to_string(minutes / 60) + " h " + std::to_string(minutes % 60) + " min";
}

}  // namespace qwen
