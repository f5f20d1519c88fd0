#include "qwen/speed_batch.h"

#include <algorithm>
#include <limits>

#include "qwen/hash.h"
#include "qwen/interrupt.h"
#include "qwen/parallel.h"
#include "qwen/tables.h"
#include "qwen/task.h"

namespace qwen {
namespace {

void add_row(Speed& speed, int batch, int steps, const std::vector<Run>& runs) {
  if (runs.empty()) return;
  const DType dtype = speed.source.stored;
  Row row = new_row(speed, "batch", "decode", dtype, "tok/s");
  row.tokens = batch * steps;
  row.context = speed.prompt;
  row.batch = batch;
  const Summary times = summarise(runs);
  set_times(row, times, batch * steps);
  row.output_hash = times.hash;
  const OperatorCosts costs =
      batch_costs(speed.source.config, dtype, batch, speed.prompt + steps / 2);
  row.limit = batch / least_seconds(total(costs), dtype, best_limits(speed));
  row.predicted = batch / predicted_seconds(costs, dtype, speed.limits.at(speed.threads));
  speed.rows.push_back(row);
}

std::string sequences(int batch) {
  return std::to_string(batch) + (batch == 1 ? " sequence" : " sequences");
}

std::string conclusion(const Speed& speed) {
  const std::vector<Row> rows = rows_of(speed, "batch");
  if (rows.size() < 2) return "";
  std::vector<double> speeds;
  for (const Row& row : rows) speeds.push_back(row.value);
  const Row& worth = rows[static_cast<std::size_t>(doublings_worth(speeds))];
  const Row& first = rows.front();
  const Row& last = rows.back();
  const double bound = computing_from(speed.source.config, speed.source.stored, speed.prompt,
                                      speed.limits.at(speed.threads));
  std::string text = sequences(*last.batch) + " in one forward give " +
                     figure(last.value / first.value) + " times the tokens of one alone, each " +
                     figure(first.value / (last.value / *last.batch)) + " times as slowly. ";
  text += bound > *last.batch ? "By the two limits reading is the limit throughout"
                              : "By the two limits the weights stop being the limit at " +
                                    figure(bound) + " sequences; from there on it is arithmetic";
  text += ", and every state has to be read and written as well. Doubling the batch brings " +
          percent(kWorthDoubling - 1) + " or more up to " + sequences(*worth.batch) + ". ";
  return text + (same_output(rows) ? "The first sequence writes the same tokens in all of them."
                                   : "THE FIRST SEQUENCE'S TOKENS DEPEND ON THE OTHERS.");
}

}  // namespace

std::vector<int> batches_to_try(const Config& config, int context, std::size_t free_memory) {
  const double each = forward_cost(config, DType::F32, 1, context).state_bytes;
  std::vector<int> batches = {1};
  for (int batch = 2; batch <= 64; batch *= 2) {
    if (batch * each <= 0.25 * static_cast<double>(free_memory)) batches.push_back(batch);
  }
  return batches;
}

double computing_from(const Config& config, DType dtype, int context, const Limits& limits) {
  // B (computing - state) = weights, all in seconds
  const Cost one = forward_cost(config, dtype, 1, context);
  const Limits endless_bandwidth{std::numeric_limits<double>::infinity(), limits.fma, limits.dot};
  const double computing = least_seconds(one, dtype, endless_bandwidth);
  const double each = computing - one.state_bytes / limits.bandwidth;
  if (each <= 0) return std::numeric_limits<double>::infinity();
  return one.weight_bytes / limits.bandwidth / each;
}

int doublings_worth(const std::vector<double>& speeds) {
  int doublings = 0;
  for (std::size_t i = 1; i < speeds.size(); ++i) {
    if (speeds[i] < kWorthDoubling * speeds[i - 1]) break;
    ++doublings;
  }
  return doublings;
}

Run run_batch(const Model& model, const Ops& ops, std::span<State> states, int steps) {
  const int B = static_cast<int>(states.size());
  std::vector<int> ids = sample_ids(model.config, B);
  std::vector<Share<State>> shares;
  for (State& state : states) shares.push_back({&state, 1});
  std::uint64_t hash = kHashOfNothing;
  Run run = timed([&] {
    for (int i = 0; i < steps; ++i) {
      if (interrupted()) throw Interrupted{};
      const Tensor2 logits = forward(model, ops, ids, shares);
      parallel_for(B, 1, [&](int b, int) {
        const float* own = row(logits, b);
        ids[b] = static_cast<int>(std::max_element(own, own + dim(logits, 1)) - own);
      });
      hash = hash_with(hash, static_cast<std::uint64_t>(ids[0]));
    }
  });
  run.hash = hash;
  return run;
}

std::string batch_part(Speed& speed) {
  const int steps = speed.full ? 16 : 2;
  const Model model = open_model(speed.source, speed.source.stored);
  const Ops ops = fast_ops();
  const std::vector<int> batches =
      batches_to_try(model.config, speed.prompt + steps, free_memory());
  std::vector<State> states;
  for (int b = 0; b < batches.back(); ++b) {
    states.push_back(filled_state(model.config, speed.prompt, steps));
  }

  std::vector<Contender> contenders = {probe(speed, speed.threads)};
  for (const int batch : batches) {
    contenders.push_back(on_team(speed.threads, sequences(batch), [&, batch] {
      const std::span<State> own = std::span(states).first(static_cast<std::size_t>(batch));
      for (State& state : own) rewind(model.config, state, speed.prompt);
      return run_batch(model, ops, own, steps);
    }));
  }
  const auto runs = measure("batch", contenders, speed.rounds);
  note_limits(speed, speed.threads, runs[0]);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    add_row(speed, batches[i], steps, runs[i + 1]);
  }
  return conclusion(speed);
}

}  // namespace qwen
