#include "qwen/speed_task.h"

#include <algorithm>

#include "qwen/tables.h"
#include "qwen/task.h"

namespace qwen {
namespace {

// Measures it here, in this process. Nothing where it was interrupted.
void add_rows(Speed& speed, const std::string& part) {
  const DType dtype = speed.source.stored;
  const Model model = open_model(speed.source, dtype);
  const Ops ops = fast_ops();
  const std::vector<int> prompt = sample_ids(model.config, speed.prompt);
  const auto task = [&] { return run_task(model, ops, prompt, speed.steps); };
  const auto runs = measure(
      part, {on_team(speed.threads, "task", task), probe(speed, speed.threads)}, speed.rounds);
  if (runs[0].empty() || runs[1].empty()) return;
  note_limits(speed, speed.threads, runs[1]);
  add_limit_rows(speed, part, speed.threads, runs[1]);
  add_task_rows(speed, part, dtype, speed.threads, runs[0]);
}

std::string speeds(const Speed& speed, const std::string& part) {
  const std::vector<Row> rows = rows_of(speed, part);
  const Row* prefill = find_row(rows, "prefill", speed.threads);
  const Row* decode = find_row(rows, "decode", speed.threads);
  if (!prefill || !decode) return "";
  return "A prompt is read at " + figure(prefill->value) + " tok/s, " +
         percent(*percent_of_limit(*prefill) / 100) + " of the limit, tokens are written at " +
         figure(decode->value) + ", " + percent(*percent_of_limit(*decode) / 100) + ".";
}

}  // namespace

std::string task_part(Speed& speed) {
  add_rows(speed, "task");
  return speeds(speed, "task");
}

std::string device_part(Speed& speed) {
  if (speed.full) {
    add_process_rows(
        speed, "device",
        {{speed.source.asked, format(speed.source.stored).name, "cpu", speed.threads}});
  } else {
    add_rows(speed, "device");
  }
  return speeds(speed, "device") +
         " cuda: absent, metal: absent; this program has kernels for the CPU only.";
}

void add_process_rows(Speed& speed, const std::string& part,
                      const std::vector<Configuration>& configurations) {
  std::vector<Outcome> outcomes;
  measure_all(part, configurations, speed.rounds.count, in_new_process(speed.prompt, speed.steps),
              outcomes);
  for (const Row& row : merged_rows(part, configurations, outcomes)) {
    Limits& limits = speed.limits[row.threads];
    if (row.metric == "bandwidth") limits.bandwidth = std::max(limits.bandwidth, row.value * 1e9);
    if (row.metric == "fma_peak") limits.fma = std::max(limits.fma, row.value * 1e9);
    if (row.metric == "dot_peak") limits.dot = std::max(limits.dot, row.value * 1e9);
    if (row.unit != "tok/s") continue;
    speed.rows.push_back(row);
  }
}

}  // namespace qwen
