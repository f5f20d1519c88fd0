#include "qwen/measure.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "qwen/interrupt.h"
#include "qwen/progress.h"
#include "qwen/stopwatch.h"

namespace qwen {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

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
      progress.show("run " + std::to_string(round), contenders[i].name);
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

Summary summarise_processes(const std::vector<std::vector<Run>>& processes, std::size_t phase) {
  Summary s;
  std::vector<double> first, others;
  for (const std::vector<Run>& runs : processes) {
    if (runs.empty()) continue;
    if (s.seconds.empty()) s.hash = runs[0].hash;
    s.seconds.emplace_back();
    for (const Run& run : runs) {
      s.seconds.back().push_back(run.seconds[phase]);
      s.same_hash = s.same_hash && run.hash == s.hash;
    }
    first.push_back(s.seconds.back()[0]);
    others.insert(others.end(), s.seconds.back().begin() + 1, s.seconds.back().end());
  }
  if (first.empty()) return s;
  const std::vector<double>& counted = others.empty() ? first : others;
  s.first = median(first);
  s.runs = static_cast<int>(counted.size());
  s.min = *std::min_element(counted.begin(), counted.end());
  s.median = median(counted);
  s.scattered = s.median > 1.1 * s.min;
  return s;
}

Summary summarise(const std::vector<Run>& runs, std::size_t phase) {
  return summarise_processes({runs}, phase);
}

}  // namespace qwen
