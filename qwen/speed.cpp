#include "qwen/speed.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>

#include "qwen/hub_cache.h"
#include "qwen/load.h"
#include "qwen/parallel.h"
#include "qwen/printable.h"
#include "qwen/random_model.h"

namespace qwen {

namespace {

bool is_shape(const std::string& name) {
  const std::vector<std::string> names = shape_names();
  return std::find(names.begin(), names.end(), name) != names.end() &&
         !std::filesystem::exists(name);
}

// Whether its float32 weights leave half of the free memory to others.
bool fits(const Config& config) {
  return parameter_count(config) * sizeof(float) <= 0.5 * static_cast<double>(free_memory());
}

std::string usual_model() {
  const HubCache cache = search_hub_cache();
  for (const std::string& remark : cache.remarks) {
    std::fprintf(stderr, "%s\n", on_one_line(remark).c_str());
  }
  if (cache.model && fits(read_config(*cache.model))) return *cache.model;
  const std::string usual = "qwen3.5-0.8b";
  return fits(named_shape(usual)) ? usual : "smollm2-135m";
}

// The last folder or file of a path; of the hub's cache, models--Qwen--NAME/snapshots/…, the name.
std::string shown_name(std::filesystem::path path) {
  path = path.lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (path.parent_path().filename() != "snapshots") return path.filename().string();
  const std::string folder = path.parent_path().parent_path().filename().string();
  const std::size_t last = folder.rfind("--");
  return last == folder.npos ? folder : folder.substr(last + 2);
}

}  // namespace

ModelSource choose_model(const std::string& path_or_shape) {
  ModelSource source;
  source.asked = path_or_shape.empty() ? usual_model() : path_or_shape;
  if (is_shape(source.asked)) {
    source.name = source.asked + " (random weights)";
    source.config = named_shape(source.asked);
    return source;
  }
  source.path = source.asked;
  source.name = shown_name(source.path);
  source.config = read_config(source.path);
  source.stored = find(open_checkpoint(source.path), "model.embed_tokens.weight").dtype;
  // Block formats are unpacked when they are loaded.
  if (format(source.stored).block_values > 1) source.stored = DType::F32;
  return source;
}

Model open_model(const ModelSource& source, DType dtype) {
  if (source.path.empty()) return random_model(source.config, dtype).model;
  return load_model(source.path, dtype);
}

double least_seconds(const Cost& cost, DType dtype, const Limits& limits) {
  // A bf16 number can be widened to a float as well: the faster of the two ways is the limit.
  const double linear_peak = dtype == DType::BF16 ? std::max(limits.dot, limits.fma) : limits.fma;
  const double computing =
      cost.linear_operations / linear_peak + cost.other_operations / limits.fma;
  return std::max(cost.bytes() / limits.bandwidth, computing);
}

double predicted_seconds(const OperatorCosts& operators, DType dtype, const Limits& limits) {
  double seconds = 0;
  for (const auto& [name, cost] : operators) seconds += least_seconds(cost, dtype, limits);
  return seconds;
}

Contender on_team(int threads, const std::string& name, const std::function<Run()>& run) {
  return {name, [=] {
            set_thread_count(threads);
            parallel_for(threads, 1, [](int, int) {});  // all are awake
            return run();
          }};
}

namespace {

// Seconds for 1e9 of what `work` returns, the best of a few times; 0 where it can do nothing.
double best_seconds(int times, const std::function<double()>& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < times; ++i) {
    double amount = 0;
    const double seconds = timed([&] { amount = work(); }).seconds[0];
    if (amount == 0) return 0;
    best = std::min(best, seconds / amount * 1e9);
  }
  return best;
}

}  // namespace

Contender probe(const Speed& speed, int threads) {
  return on_team(threads, "limits", [&block = speed.block] {
    constexpr int kBursts = 10;
    std::vector<double> reads;
    for (int order = 0; order < kReadOrders; ++order) {
      reads.push_back(best_seconds(1, [&] { return read_all(block, order); }));
    }
    Run run{{std::ranges::min(reads), best_seconds(kBursts, multiply_adds),
             best_seconds(kBursts, bf16_dot_products)}};
    run.seconds.insert(run.seconds.end(), reads.begin(), reads.end());
    return run;
  });
}

void note_limits(Speed& speed, int threads, const std::vector<Run>& probes) {
  Limits& best = speed.limits[threads];
  const auto better = [](double& limit, double seconds) {
    if (seconds > 0) limit = std::max(limit, 1e9 / seconds);
  };
  for (const Run& run : probes) {
    better(best.bandwidth, run.seconds[0]);
    better(best.fma, run.seconds[1]);
    better(best.dot, run.seconds[2]);
  }
}

void add_limit_rows(Speed& speed, const std::string& part, int threads,
                    const std::vector<Run>& probes) {
  struct Figure {
    const char* metric;
    const char* dtype;
    const char* unit;
  };
  constexpr Figure kFigures[] = {
      {"bandwidth", "", "GB/s"}, {"fma_peak", "f32", "GFLOP/s"}, {"dot_peak", "bf16", "GFLOP/s"}};
  for (std::size_t phase = 0; phase < 3; ++phase) {
    const Summary times = summarise(probes, phase);
    if (times.runs == 0 || times.min == 0) continue;  // the CPU cannot do it
    Row row;
    row.part = part;
    row.metric = kFigures[phase].metric;
    row.dtype = kFigures[phase].dtype;
    row.unit = kFigures[phase].unit;
    row.threads = threads;
    set_times(row, times, 1);
    speed.rows.push_back(row);
  }
}

Limits best_limits(const Speed& speed) {
  Limits best;
  for (const auto& [threads, l] : speed.limits) {
    best.bandwidth = std::max(best.bandwidth, l.bandwidth);
    best.fma = std::max(best.fma, l.fma);
    best.dot = std::max(best.dot, l.dot);
  }
  return best;
}

Row new_row(const Speed& speed, const std::string& part, const std::string& metric, DType dtype,
            const std::string& unit) {
  Row row;
  row.part = part;
  row.metric = metric;
  row.model = speed.source.name;
  row.dtype = format(dtype).name;
  row.threads = speed.threads;
  row.unit = unit;
  return row;
}

void add_task_rows(Speed& speed, const std::string& part, DType dtype, int threads,
                   const std::vector<Run>& runs) {
  if (runs.empty()) return;
  const Limits best = best_limits(speed), own = speed.limits[threads];
  const auto add = [&](const char* metric, int phase, int tokens, int context, int each_step) {
    Row row = new_row(speed, part, metric, dtype, "tok/s");
    row.threads = threads;
    row.tokens = tokens;
    row.context = context;
    row.batch = 1;
    const Summary times = summarise(runs, static_cast<std::size_t>(phase));
    set_times(row, times, tokens);
    const OperatorCosts costs = operator_costs(speed.source.config, dtype, each_step, context);
    row.limit = each_step / least_seconds(total(costs), dtype, best);
    row.predicted = each_step / predicted_seconds(costs, dtype, own);
    row.output_hash = times.hash;
    speed.rows.push_back(row);
  };
  add("prefill", 0, speed.prompt, 0, speed.prompt);
  add("decode", 1, speed.steps, speed.prompt + speed.steps / 2, 1);
}

std::vector<Row> rows_of(const Speed& speed, const std::string& part) {
  std::vector<Row> rows;
  for (const Row& row : speed.rows) {
    if (row.part == part) rows.push_back(row);
  }
  return rows;
}

const Row* find_row(const std::vector<Row>& rows, const std::string& metric, int threads,
                    const std::string& dtype) {
  for (const Row& row : rows) {
    if (row.metric == metric && row.threads == threads && (dtype.empty() || row.dtype == dtype)) {
      return &row;
    }
  }
  return nullptr;
}

bool same_output(const std::vector<Row>& rows) {
  std::optional<std::uint64_t> first;
  for (const Row& row : rows) {
    if (!row.output_hash) continue;
    if (!first) first = row.output_hash;
    if (row.output_hash != first) return false;
  }
  return true;
}

}  // namespace qwen
