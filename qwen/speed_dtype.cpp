#include "qwen/speed_dtype.h"

#include <algorithm>
#include <cmath>

#include "qwen/parallel.h"
#include "qwen/speed_task.h"
#include "qwen/tables.h"
#include "qwen/task.h"

namespace qwen {
namespace {

constexpr DType kTypes[] = {DType::F32, DType::BF16, DType::F16};
constexpr int kComparedTokens = 64;

// Opens the model in that type, and adds how long it took and what it occupies.
Model open_and_report(Speed& speed, DType dtype) {
  const double before = static_cast<double>(resident_memory());
  Model model;
  const Run load = timed([&] { model = open_model(speed.source, dtype); });
  // Of a mapped file, only what has been read occupies memory: a token reads all of it.
  run_task(model, fast_ops(), {0}, 0);

  Row time = new_row(speed, "dtype", speed.source.path.empty() ? "make" : "load", dtype, "ms");
  set_times(time, summarise({load}));
  speed.rows.push_back(time);
  Row memory = new_row(speed, "dtype", "resident", dtype, "MB");
  memory.value = (static_cast<double>(resident_memory()) - before) / 1e6;
  memory.predicted = parameter_count(model.config) * format(dtype).block_bytes / 1e6;
  speed.rows.push_back(memory);
  return model;
}

// Logits at every position of a fixed text.
Tensor2 all_logits(const Model& model) {
  const Ops ops = fast_ops();
  const std::vector<int> ids = sample_ids(model.config, kComparedTokens);
  State state = empty_state(model.config);
  const Share<State> alone{&state, kComparedTokens};
  return head(model, ops, hidden_states(model, ops, ids, {&alone, 1}));
}

// How far logits are from those in float32: how often the same token is first, and the largest
// difference, as a share of the largest logit.
void add_agreement(Speed& speed, DType dtype, const Tensor2& logits, const Tensor2& exact) {
  const int T = dim(exact, 0), V = dim(exact, 1);
  int same = 0;
  float largest = 0, difference = 0;
  for (int t = 0; t < T; ++t) {
    const float* x = row(logits, t);
    const float* y = row(exact, t);
    same += std::max_element(x, x + V) - x == std::max_element(y, y + V) - y;
    for (int i = 0; i < V; ++i) {
      largest = std::max(largest, std::abs(y[i]));
      difference = std::max(difference, std::abs(x[i] - y[i]));
    }
  }
  Row top1 = new_row(speed, "dtype", "top1_agreement", dtype, "%");
  top1.tokens = T;
  top1.value = 100.0 * same / T;
  speed.rows.push_back(top1);
  Row error = new_row(speed, "dtype", "largest_difference", dtype, "of max");
  error.tokens = T;
  error.value = difference / largest;
  speed.rows.push_back(error);
}

// What another type should do for the speed of float32, by its bytes and its peak.
void predict_from_f32(Speed& speed) {
  std::vector<Row>& rows = speed.rows;
  for (Row& row : rows) {
    if (row.part != "dtype" || row.unit != "tok/s") continue;
    const Row* f32 = find_row(rows_of(speed, "dtype"), row.metric, row.threads, "f32");
    row.predicted = f32 && row.dtype != "f32" ? std::optional(f32->value * *row.limit / *f32->limit)
                                              : std::nullopt;
  }
}

std::string conclusion(const Speed& speed) {
  const std::vector<Row> rows = rows_of(speed, "dtype");
  const auto value = [&](const char* metric, DType dtype) {
    const Row* row = find_row(rows, metric, speed.threads, format(dtype).name);
    return row ? row->value : 0;
  };
  std::string text;
  const Row* fastest = nullptr;
  for (const DType dtype : kTypes) {
    const Row* decode = find_row(rows, "decode", speed.threads, format(dtype).name);
    if (decode && (!fastest || decode->value > fastest->value)) fastest = decode;
    if (!decode || dtype == DType::F32 || value("decode", DType::F32) == 0) continue;
    text += std::string(text.empty() ? "Against f32, " : "; ") + format(dtype).name + " decodes " +
            figure(value("decode", dtype) / value("decode", DType::F32)) + " and prefills " +
            figure(value("prefill", dtype) / value("prefill", DType::F32)) +
            " times as fast, and picks the same token " +
            percent(value("top1_agreement", dtype) / 100) + " of the time";
  }
  if (!fastest) return "";
  if (!text.empty()) text += ". ";
  return text + "For decoding choose " + fastest->dtype + ": it reaches " +
         percent(*percent_of_limit(*fastest) / 100) + " of what the memory allows.";
}

// All types in this process.
void measure_here(Speed& speed, const std::vector<Model>& models) {
  const Ops ops = fast_ops();
  const std::vector<int> prompt = sample_ids(speed.source.config, speed.prompt);
  std::vector<Contender> contenders = {probe(speed, speed.threads)};
  for (std::size_t i = 0; i < models.size(); ++i) {
    contenders.push_back(on_team(speed.threads, format(kTypes[i]).name,
                                 [&, i] { return run_task(models[i], ops, prompt, speed.steps); }));
  }
  const auto runs = measure("dtype", contenders, speed.rounds);
  note_limits(speed, speed.threads, runs[0]);
  for (std::size_t i = 0; i < models.size(); ++i) {
    add_task_rows(speed, "dtype", kTypes[i], speed.threads, runs[i + 1]);
  }
}

}  // namespace

std::string dtype_part(Speed& speed) {
  set_thread_count(speed.threads);
  std::vector<Model> models;
  Tensor2 exact;
  for (const DType dtype : kTypes) {
    models.push_back(open_and_report(speed, dtype));
    Tensor2 logits = all_logits(models.back());
    if (dtype == DType::F32) {
      exact = std::move(logits);
    } else {
      add_agreement(speed, dtype, logits, exact);
    }
  }

  if (speed.full) {
    models.clear();  // the processes need the memory
    std::vector<std::string> names;
    for (const DType dtype : kTypes) names.push_back(format(dtype).name);
    add_process_rows(speed, "dtype",
                     all_configurations({speed.source.asked}, names, {"cpu"}, {speed.threads}));
  } else {
    measure_here(speed, models);
  }
  predict_from_f32(speed);
  return conclusion(speed);
}

}  // namespace qwen
