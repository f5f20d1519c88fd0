#include "qwen/measure.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <random>

#include "qwen/interrupt.h"

namespace qwen {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One line on stderr that is written over, on a terminal; elsewhere one line a round.
class Progress {
 public:
  Progress(const std::string& title, std::size_t total) : title_(title), total_(total) {}
  ~Progress() {
    if (on_terminal_) std::fprintf(stderr, "\r\033[K");
  }

  void show(const std::string& name, int round, bool new_round) {
    if (!on_terminal_ && !new_round) return;
    std::fprintf(stderr, "%s%s: run %d, %s", on_terminal_ ? "\r\033[K" : "", title_.c_str(), round,
                 on_terminal_ ? name.c_str() : "all");
    if (round > 0) {
      const double each = seconds_since(start_) / static_cast<double>(done_);
      std::fprintf(stderr, ", %.0f s left", each * static_cast<double>(total_ - done_));
    }
    std::fprintf(stderr, on_terminal_ ? "" : "\n");
    std::fflush(stderr);
  }
  void step() { ++done_; }

 private:
  const std::string title_;
  const std::size_t total_;
  const bool on_terminal_ = isatty(STDERR_FILENO) != 0;
  const Clock::time_point start_ = Clock::now();
  std::size_t done_ = 0;
};

}  // namespace

Run timed(const std::function<void()>& work) {
  const Clock::time_point start = Clock::now();
  work();
  return {{seconds_since(start)}};
}

std::vector<std::vector<Run>> measure(const std::string& title,
                                      const std::vector<Contender>& contenders, Rounds rounds) {
  std::vector<std::vector<Run>> runs(contenders.size());
  std::vector<std::size_t> order(contenders.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 random(1);
  constexpr int kLeastRounds = 2;
  const Clock::time_point start = Clock::now();
  Progress progress(title, contenders.size() * static_cast<std::size_t>(rounds.count + 1));
  for (int round = 0; round <= rounds.count; ++round) {
    // Another round would take about as long as those so far did.
    const double after = seconds_since(start) * (round + 1) / std::max(round, 1);
    if (round > kLeastRounds && after > rounds.seconds) break;
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      if (interrupted()) return runs;
      progress.show(contenders[i].name, round, i == order.front());
      try {
        runs[i].push_back(contenders[i].run());
      } catch (const Interrupted&) {
        return runs;
      }
      progress.step();
    }
  }
  return runs;
}

Summary summarise(const std::vector<Run>& runs, std::size_t phase) {
  Summary s;
  if (runs.empty()) return s;
  s.first = runs[0].seconds[phase];
  s.hash = runs[0].hash;
  std::vector<double> seconds;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (i > 0 || runs.size() == 1) seconds.push_back(runs[i].seconds[phase]);
    s.same_hash = s.same_hash && runs[i].hash == s.hash;
  }
  std::sort(seconds.begin(), seconds.end());
  const std::size_t n = seconds.size();
  s.runs = static_cast<int>(n);
  s.min = seconds[0];
  s.median = (seconds[(n - 1) / 2] + seconds[n / 2]) / 2;
  s.scattered = s.median > 1.1 * s.min;
  return s;
}

}  // namespace qwen
