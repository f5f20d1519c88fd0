#include "qwen/speed_ops.h"

#include <algorithm>
#include <limits>
#include <span>

#include "qwen/tables.h"
#include "qwen/task.h"

namespace qwen {
namespace {

// ---- the products alone ----

// "linear 3584x1024 x48"
std::string name_of(const LinearCalls& calls) {
  const Weight& first = calls.weights.front();
  return "linear " + std::to_string(first.rows) + "x" + std::to_string(first.cols) + " x" +
         std::to_string(calls.weights.size());
}

// All of them, one after the other: a matrix has left the caches when its turn comes again, unless
// all of that shape fit in.
Run run_alone(const LinearCalls& calls, const Ops& ops) {
  Tensor2 x = uninit(calls.rows, calls.weights.front().cols), y;
  x.fill(0.5f);
  return timed([&] {
    for (const Weight& w : calls.weights) y = ops.linear(x, w);
  });
}

Cost cost_of(const LinearCalls& calls) {
  Cost cost;
  for (const Weight& w : calls.weights) {
    cost.weight_bytes += static_cast<double>(bytes(w));
    cost.linear_operations += 2.0 * w.rows * w.cols * calls.rows;
  }
  return cost;
}

// ---- the whole step ----

// Reading a prompt, or writing tokens after one.
class Step {
 public:
  Step(const Speed& speed, const Model& model, int tokens)
      : model_(model),
        tokens_(tokens),
        steps_(tokens == 1 ? kDecodeSteps : 1),
        position_(tokens == 1 ? speed.prompt : 0),
        prompt_(sample_ids(model.config, tokens)),
        state_(filled_state(model.config, position_, kDecodeSteps)) {}

  int tokens() const { return tokens_; }
  int steps() const { return steps_; }
  OperatorCosts costs(DType dtype) const {
    return operator_costs(model_.config, dtype, tokens_, position_ + (steps_ - 1) / 2);
  }

  // Seconds of one step.
  Run run(const Ops& ops) {
    Run run;
    if (tokens_ == 1) {
      rewind(model_.config, state_, position_);
      run = run_steps(model_, ops, state_, steps_);
    } else {
      run = run_task(model_, ops, prompt_, 0);
    }
    run.seconds[0] /= steps_;
    return run;
  }

  // The same with stopwatches around the operators. The fastest such run is kept.
  Run run_watched(const Ops& ops) {
    Profile profile;
    const Run watched = run(timed_ops(ops, profile));
    if (watched.seconds[0] < fastest_seconds_) {
      fastest_seconds_ = watched.seconds[0];
      fastest_ = profile;
    }
    return watched;
  }
  const Profile& fastest() const { return fastest_; }
  double fastest_seconds() const { return fastest_seconds_; }

 private:
  static constexpr int kDecodeSteps = 8;

  const Model& model_;
  const int tokens_, steps_, position_;
  const std::vector<int> prompt_;
  State state_;
  Profile fastest_;
  double fastest_seconds_ = std::numeric_limits<double>::infinity();
};

// ---- rows ----

Row new_ops_row(const Speed& speed, const std::string& metric, int tokens,
                const std::string& unit) {
  Row row = new_row(speed, "ops", metric, speed.source.stored, unit);
  row.tokens = tokens;
  return row;
}

// One row for each distinct product, and one for their sum.
void add_linear_rows(Speed& speed, int tokens, const std::vector<LinearCalls>& calls,
                     std::span<const std::vector<Run>> runs) {
  const DType dtype = speed.source.stored;
  Row sum = new_ops_row(speed, "linear_sum", tokens, "ms");
  sum.limit = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    Row row = new_ops_row(speed, name_of(calls[i]), calls[i].rows, "ms");
    set_times(row, summarise(runs[i]));
    row.limit = 1e3 * least_seconds(cost_of(calls[i]), dtype, best_limits(speed));
    sum.value += row.value;
    *sum.limit += *row.limit;
    speed.rows.push_back(row);
  }
  speed.rows.push_back(sum);
}

void add_step_row(Speed& speed, const Step& step, const std::vector<Run>& runs) {
  const DType dtype = speed.source.stored;
  Row row = new_ops_row(speed, "step", step.tokens(), "ms");
  const Summary times = summarise(runs);
  set_times(row, times);
  row.output_hash = times.hash;
  row.limit = 1e3 * least_seconds(total(step.costs(dtype)), dtype, best_limits(speed));
  row.predicted = 1e3 * predicted_seconds(step.costs(dtype), dtype, speed.limits.at(speed.threads));
  speed.rows.push_back(row);
}

// Each operator in percent of the step, beside the percentage that its own limit would take.
void add_share_rows(Speed& speed, int tokens, double step, const std::vector<OperatorTime>& times) {
  for (const OperatorTime& time : times) {
    Row row = new_ops_row(speed, "share " + time.name, tokens, "%");
    row.value = 100 * time.seconds / step;
    row.min = row.median = 1e3 * time.seconds;
    row.runs = 1;  // the fastest
    if (time.least > 0) row.limit = 100 * time.least / step;
    speed.rows.push_back(row);
  }
}

// ---- what follows ----

// The operators that lose most against their limits, with what they lose.
std::string losses(std::vector<OperatorTime> times) {
  constexpr std::size_t kNamed = 3;
  const auto lost = [](const OperatorTime& time) { return time.seconds - time.least; };
  std::sort(times.begin(), times.end(),
            [&](const OperatorTime& a, const OperatorTime& b) { return lost(a) > lost(b); });
  if (times.size() > kNamed) times.resize(kNamed);
  std::string text;
  for (const OperatorTime& time : times) {
    text += (text.empty() ? "" : ", ") + time.name + " " + figure(1e3 * lost(time)) + " ms";
    if (time.least > 0) text += " (at " + percent(time.least / time.seconds) + " of its limit)";
  }
  return text;
}

std::string conclusion(const Speed& speed, int tokens, const std::vector<OperatorTime>& times) {
  const auto row = [&](const std::string& metric) {
    const std::vector<Row> rows = rows_of(speed, "ops");
    return *std::find_if(rows.begin(), rows.end(), [&](const Row& candidate) {
      return candidate.metric == metric && candidate.tokens == tokens;
    });
  };
  const Row step = row("step");
  const double predicted = *step.predicted;
  return (tokens == 1 ? "A token" : std::to_string(tokens) + " tokens") +
         std::string(" should take ") + figure(predicted) + " ms (" +
         figure(1e3 * tokens / predicted) + " tok/s), operator by operator at its limit, and " +
         (tokens == 1 ? "takes " : "take ") + figure(step.value) + " (" +
         figure(1e3 * tokens / step.value) + "). Most of the difference: " + losses(times) +
         ". The products alone add up to " + percent(row("linear_sum").value / step.value) +
         " of the step.";
}

// One of the two steps, and its products.
struct Case {
  Step step;
  std::vector<LinearCalls> calls;
};

// Adds the rows of a case and says what follows. `runs` are those of the step, of the watched step,
// and of each product.
std::string add_rows(Speed& speed, const Case& which, std::span<const std::vector<Run>> runs) {
  const Step& step = which.step;
  const DType dtype = speed.source.stored;
  add_linear_rows(speed, step.tokens(), which.calls, runs.subspan(2));
  add_step_row(speed, step, runs[0]);
  const std::vector<OperatorTime> times =
      operator_times(step.fastest(), step.steps(), step.fastest_seconds() * step.steps(),
                     step.costs(dtype), dtype, speed.limits.at(speed.threads));
  add_share_rows(speed, step.tokens(), step.fastest_seconds(), times);
  return conclusion(speed, step.tokens(), times);
}

// Which group of operators an entry of the profile counts to.
std::string group_of(const std::string& entry) {
  if (!entry.starts_with("linear ")) return entry;
  const std::string weight = entry.substr(entry.find(' ') + 1);
  if (weight.starts_with("mlp.")) return "linear, MLP";
  if (weight.starts_with("self_attn.")) return "linear, attention";
  if (weight.starts_with("linear_attn.")) return "linear, DeltaNet";
  return "linear, head";
}

}  // namespace

std::vector<LinearCalls> linear_calls(const Model& model, int tokens) {
  std::vector<LinearCalls> all;
  Ops ops = fast_ops();
  ops.products = one_by_one([&](const Tensor2& x, const Weight& w) {
    const auto like = std::find_if(all.begin(), all.end(), [&](const LinearCalls& calls) {
      const Weight& first = calls.weights.front();
      return calls.rows == dim(x, 0) && first.rows == w.rows && first.cols == w.cols;
    });
    if (like == all.end()) {
      all.push_back({dim(x, 0), {w}});
    } else {
      like->weights.push_back(w);
    }
    return zeros(dim(x, 0), w.rows);
  });
  run_task(model, ops, sample_ids(model.config, tokens), 0);
  return all;
}

std::vector<OperatorTime> operator_times(const Profile& profile, int steps, double total_seconds,
                                         const OperatorCosts& costs, DType dtype,
                                         const Limits& limits) {
  struct Group {
    double seconds = 0;
    Cost cost;
  };
  std::map<std::string, Group> groups;
  double between = total_seconds / steps;
  for (const auto& [name, entry] : profile.entries) {
    Group& group = groups[group_of(name)];
    group.seconds += entry.seconds / steps;
    between -= entry.seconds / steps;
    if (name.starts_with("linear ")) {
      group.cost.weight_bytes += entry.bytes / steps;
      group.cost.linear_operations += 2 * entry.additions / steps;
    } else if (costs.contains(name)) {
      group.cost = costs.at(name);
    }
  }
  std::vector<OperatorTime> times;
  for (const auto& [name, group] : groups) {
    times.push_back({name, group.seconds, least_seconds(group.cost, dtype, limits)});
  }
  std::sort(times.begin(), times.end(),
            [](const OperatorTime& a, const OperatorTime& b) { return a.seconds > b.seconds; });
  times.push_back({"between operators", between, 0});
  return times;
}

std::string ops_part(Speed& speed) {
  const Model model = open_model(speed.source, speed.source.stored);
  const Ops ops = fast_ops();
  std::vector<Case> cases;
  for (const int tokens : {1, speed.prompt}) {
    cases.push_back({Step(speed, model, tokens), linear_calls(model, tokens)});
  }
  std::vector<Contender> contenders = {probe(speed, speed.threads)};
  for (Case& which : cases) {
    const auto add = [&](const std::string& name, const std::function<Run()>& run) {
      contenders.push_back(on_team(speed.threads, name, run));
    };
    add("the step", [&] { return which.step.run(ops); });
    add("the step, watched", [&] { return which.step.run_watched(ops); });
    for (const LinearCalls& calls : which.calls) {
      add(name_of(calls), [&] { return run_alone(calls, ops); });
    }
  }
  const auto runs = measure("ops", contenders, speed.rounds);
  note_limits(speed, speed.threads, runs[0]);

  std::string text;
  std::span<const std::vector<Run>> left = std::span(runs).subspan(1);
  for (const Case& which : cases) {
    const std::size_t own = 2 + which.calls.size();
    if (std::any_of(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(own),
                    [](const std::vector<Run>& all) { return all.empty(); })) {
      return text;
    }
    if (!text.empty()) text += '\n';
    text += add_rows(speed, which, left.first(own));
    left = left.subspan(own);
  }
  return text;
}

}  // namespace qwen
