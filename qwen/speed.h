// What the parts of the speed chapter share: the model, the machine's limits, and the rows.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "qwen/costs.h"
#include "qwen/machine_record.h"
#include "qwen/measure.h"
#include "qwen/model.h"
#include "qwen/results.h"
#include "qwen/roofline.h"

namespace qwen {

// What there is to run: a checkpoint, or a shape to fill with random weights.
struct ModelSource {
  std::string name;   // as shown
  std::string asked;  // what choose_model makes the same of
  std::string path;   // empty: random, in memory
  Config config;
  DType stored = DType::BF16;  // of all parts that do not vary it; as it lies in the checkpoint
};

// The checkpoint at that path, or random weights in the shape of that name (random_model.h). For
// an empty string a Qwen3.5 that lies in the hub's cache, else Qwen3.5-0.8B's shape; where their
// float32 weights would take more than half of the free memory, SmolLM2-135M's.
ModelSource choose_model(const std::string& path_or_shape);

// Loads or makes it, its matrices in that type.
Model open_model(const ModelSource& source, DType dtype);

// The best that the probes of roofline.h have shown, per second.
struct Limits {
  double bandwidth = 0;  // bytes
  double fma = 0;        // operations in float32
  double dot = 0;        // operations in bf16; 0 where the CPU has no instruction for it
};

// The least time a step can take, from what it costs.
double least_seconds(const Cost& cost, DType dtype, const Limits& limits);

// What a step should take: one operator after the other, each at the limit that binds it.
double predicted_seconds(const OperatorCosts& operators, DType dtype, const Limits& limits);

struct Speed {
  ModelSource source;
  int threads = 1;               // of all parts that do not vary them
  int prompt = 203, steps = 32;  // of the task (task.h)
  Rounds rounds;
  bool full = false;
  ReadBlock block{0};            // what the probes read
  std::map<int, Limits> limits;  // by number of threads
  std::vector<Row> rows;         // all that is finished
};

// A contender that starts a team of so many threads before its clock starts.
Contender on_team(int threads, const std::string& name, const std::function<Run()>& run);

// Bandwidth and peaks with so many threads. Phases: seconds for a gigabyte, for 1e9 operations in
// float32, for 1e9 in bf16; then for a gigabyte in each of the orders of read_all.
inline constexpr int kFirstReadOrder = 3;
Contender probe(const Speed& speed, int threads);
void note_limits(Speed& speed, int threads, const std::vector<Run>& probes);

// Rows of what a probe has shown: "bandwidth", "fma_peak", "dot_peak".
void add_limit_rows(Speed& speed, const std::string& part, int threads,
                    const std::vector<Run>& probes);

// What the best team has shown of each.
Limits best_limits(const Speed& speed);

// A row of that part, for the model and the number of threads of all parts.
Row new_row(const Speed& speed, const std::string& part, const std::string& metric, DType dtype,
            const std::string& unit);

// Rows of one task's runs, prefill and decode, with limit and prediction: the limit is that of the
// best team, as if it read and computed at once; the prediction follows from this team's own
// bandwidth and peak, operator by operator.
void add_task_rows(Speed& speed, const std::string& part, DType dtype, int threads,
                   const std::vector<Run>& runs);

// The rows of one part.
std::vector<Row> rows_of(const Speed& speed, const std::string& part);

// The row with that metric, number of threads and dtype, or nullptr. ("": any dtype)
const Row* find_row(const std::vector<Row>& rows, const std::string& metric, int threads,
                    const std::string& dtype = "");

// Whether all rows that have an output have the same.
bool same_output(const std::vector<Row>& rows);

}  // namespace qwen
