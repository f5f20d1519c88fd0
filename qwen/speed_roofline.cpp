#include "qwen/speed_roofline.h"

namespace qwen {
namespace {

void add_rows(Speed& speed, int threads, const std::vector<Run>& runs) {
  struct Figure {
    const char* metric;
    const char* dtype;
    const char* unit;
  };
  constexpr Figure kFigures[] = {
      {"bandwidth", "", "GB/s"}, {"fma_peak", "f32", "GFLOP/s"}, {"dot_peak", "bf16", "GFLOP/s"}};
  for (std::size_t phase = 0; phase < 3; ++phase) {
    const Summary times = summarise(runs, phase);
    if (times.runs == 0 || times.min == 0) continue;  // the CPU cannot do it
    Row row;
    row.part = "roofline";
    row.metric = kFigures[phase].metric;
    row.dtype = kFigures[phase].dtype;
    row.unit = kFigures[phase].unit;
    row.threads = threads;
    set_times(row, times, 1);
    speed.rows.push_back(row);
  }
}

std::string conclusion(const Speed& speed, int all) {
  const Limits& limits = speed.limits.at(all);
  const Config& config = speed.source.config;
  std::string text;
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const Cost decode = forward_cost(config, dtype, 1, 0);
    text += std::string(text.empty() ? "A token reads " : "; ") + figure(decode.bytes() / 1e9) +
            " GB in " + format(dtype).name + ", so that more than " +
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
    add_rows(speed, teams[i], runs[i]);
  }
  return conclusion(speed, speed.threads);
}

}  // namespace qwen
