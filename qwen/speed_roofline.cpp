#include "qwen/speed_roofline.h"

#include <limits>

namespace qwen {
namespace {

// The order in which memory was read fastest, by the probes of all threads.
std::string best_order(const std::vector<Run>& probes) {
  int best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (const Run& run : probes) {
    for (int order = 0; order < kReadOrders; ++order) {
      const double seconds = run.seconds[kFirstReadOrder + order];
      if (seconds < least) least = seconds, best = order;
    }
  }
  return kReadOrderNames[best];
}

std::string conclusion(const Speed& speed, int all, const std::vector<Run>& probes) {
  const Limits& limits = speed.limits.at(all);
  const Config& config = speed.source.config;
  std::string text = "Memory is read fastest " + best_order(probes) + ". ";
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const Cost decode = forward_cost(config, dtype, 1, 0);
    text += std::string(dtype == DType::F32 ? "A token reads " : "; ") +
            figure(decode.bytes() / 1e9) + " GB in " + format(dtype).name + ", so that more than " +
            figure(limits.bandwidth / decode.bytes()) + " tok/s cannot be decoded";
  }
  const Cost cost = forward_cost(config, DType::F32, speed.prompt, 0);
  const double each = cost.operations() / speed.prompt;
  text += ". Reading a prompt takes " + figure(each / 1e9) +
          " GFLOP a token: " + figure(limits.fma / each) + " tok/s at most in f32";
  if (limits.dot > 0) {
    text += ", " +
            figure(speed.prompt / least_seconds(forward_cost(config, DType::BF16, speed.prompt, 0),
                                                DType::BF16, limits)) +
            " in bf16";
  }
  return text + ".";
}

}  // namespace

std::string roofline_part(Speed& speed) {
  std::vector<int> teams = {1};
  if (speed.threads > 1) teams.push_back(speed.threads);
  std::vector<Contender> contenders;
  for (const int threads : teams) contenders.push_back(probe(speed, threads));
  const auto runs = measure("roofline", contenders, {5, 20});
  for (std::size_t i = 0; i < teams.size(); ++i) {
    if (runs[i].empty()) return "";
    note_limits(speed, teams[i], runs[i]);
    add_limit_rows(speed, "roofline", teams[i], runs[i]);
  }
  return conclusion(speed, speed.threads, runs.back());
}

}  // namespace qwen
