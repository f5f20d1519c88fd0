#include "qwen/speed_context.h"

#include <algorithm>

#include "qwen/cache.h"
#include "qwen/tables.h"
#include "qwen/task.h"

namespace qwen {
namespace {

constexpr DType kAnyType = DType::F32;  // the state is float32 whatever the weights are

// Bytes of the keys and values of so many tokens.
double kv_bytes(const Config& config, int tokens) {
  return operator_costs(config, kAnyType, tokens, 0).at("attention").state_bytes;
}

// Bytes of S and the conv tails: what a token reads and writes, once.
double fixed_bytes(const Config& config) {
  const OperatorCosts costs = operator_costs(config, kAnyType, 1, 0);
  return (costs.at("delta_rule").state_bytes + costs.at("conv_qkv").state_bytes) / 2;
}

void add_rows(Speed& speed, int context, int steps, const State& state,
              const std::vector<Run>& runs) {
  if (runs.empty()) return;
  const Config& config = speed.source.config;
  const DType dtype = speed.source.stored;
  const OperatorCosts costs = operator_costs(config, dtype, 1, context + steps / 2);

  Row decode = new_row(speed, "context", "decode", dtype, "ms");
  decode.tokens = steps;
  decode.context = context;
  const Summary times = summarise(runs);
  set_times(decode, times);
  decode.output_hash = times.hash;
  decode.limit = 1e3 * least_seconds(total(costs), dtype, best_limits(speed));
  decode.predicted = 1e3 * predicted_seconds(costs, dtype, speed.limits.at(speed.threads));
  speed.rows.push_back(decode);

  Row memory = new_row(speed, "context", "state", dtype, "MB");
  memory.context = context;
  memory.value = static_cast<double>(state_bytes(state).total()) / 1e6;
  memory.predicted = (kv_bytes(config, context) + fixed_bytes(config)) / 1e6;
  speed.rows.push_back(memory);
}

std::string conclusion(const Speed& speed) {
  std::vector<Row> decode = rows_of(speed, "context");
  std::erase_if(decode, [](const Row& row) { return row.metric != "decode"; });
  if (decode.size() < 2) return "";
  const Config& config = speed.source.config;
  const Row& first = decode.front();
  const Row& last = decode.back();
  const double kv = kv_bytes(config, *last.context), fixed = fixed_bytes(config);
  const double growth = last.value - first.value;
  std::string text = "After " + std::to_string(*last.context) + " tokens a token takes " +
                     figure(last.value / first.value) +
                     " times as long as at the start: " + figure(growth) +
                     " ms more, in which it reads " + figure(kv / 1e6) +
                     " MB of keys and values, at " + figure(kv / growth / 1e6) + " GB/s or " +
                     percent(kv / (growth / 1e3) / speed.limits.at(speed.threads).bandwidth) +
                     " of the bandwidth. ";
  const auto attention =
      std::count(config.layer_types.begin(), config.layer_types.end(), LayerType::full_attention);
  if (fixed == 0) return text + "All its layers are attention: nothing of the state stays small.";
  const double all_attention = kv * config.num_hidden_layers / static_cast<double>(attention);
  return text + "S and the conv tails are " + figure(fixed / 1e6) +
         " MB, however long the text. Were all " + std::to_string(config.num_hidden_layers) +
         " layers attention and not " + std::to_string(attention) + ", there would be " +
         figure(all_attention / 1e6) + " MB to read.";
}

}  // namespace

std::vector<int> contexts_to_try(const Config& config, int steps, std::size_t free_memory) {
  std::vector<int> contexts;
  double needed = 0;
  for (const int context : {0, 1024, 4096, 16384, 32768}) {
    needed += kv_bytes(config, context + steps) + fixed_bytes(config);
    const bool fits = context + steps <= config.max_position_embeddings &&
                      needed <= 0.25 * static_cast<double>(free_memory);
    if (fits || context == 0) contexts.push_back(context);
  }
  return contexts;
}

std::string context_part(Speed& speed) {
  const int steps = speed.full ? 16 : 4;
  const Model model = open_model(speed.source, speed.source.stored);
  const Ops ops = fast_ops();
  const std::vector<int> contexts = contexts_to_try(model.config, steps, free_memory());
  std::vector<State> states;
  for (const int context : contexts) states.push_back(filled_state(model.config, context, steps));

  std::vector<Contender> contenders = {probe(speed, speed.threads)};
  for (std::size_t i = 0; i < contexts.size(); ++i) {
    const std::string name = "after " + std::to_string(contexts[i]) + " tokens";
    contenders.push_back(on_team(speed.threads, name, [&, i] {
      rewind(model.config, states[i], contexts[i]);
      Run run = run_steps(model, ops, states[i], steps);
      run.seconds[0] /= steps;
      return run;
    }));
  }
  const auto runs = measure("context", contenders, speed.rounds);
  note_limits(speed, speed.threads, runs[0]);
  for (std::size_t i = 0; i < contexts.size(); ++i) {
    rewind(model.config, states[i], contexts[i]);
    add_rows(speed, contexts[i], steps, states[i], runs[i + 1]);
  }
  return conclusion(speed);
}

}  // namespace qwen
