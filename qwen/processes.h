// Measuring configurations in processes of their own: what one of them has warmed up helps none of
// the others, and the luck of a process (where its memory lies, which neighbour it met) shows as
// scatter instead of passing for a property of the configuration.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "qwen/results.h"

namespace qwen {

struct Configuration {
  std::string model;  // what --model takes
  std::string dtype, device = "cpu";
  int threads = 1;

  // A model's name that is no UTF-8 is equal to what a file makes of it.
  bool operator==(const Configuration& other) const;
};

// Every model in every dtype, on every device, with every number of threads; each once.
std::vector<Configuration> all_configurations(const std::vector<std::string>& models,
                                              const std::vector<std::string>& dtypes,
                                              const std::vector<std::string>& devices,
                                              const std::vector<int>& threads);

// Every configuration is measured in so many processes, between those of the others.
inline constexpr int kProcesses = 3;

// How many of so many runs fall to a process, besides its run 0.
int runs_of_process(int runs, int process);

// What one process has measured.
struct Outcome {
  Configuration configuration;
  int process = 0;
  std::vector<Row> rows;
};

// Whether that process of a configuration is among them.
bool is_done(const std::vector<Outcome>& outcomes, const Configuration& configuration, int process);

// Measures a configuration once, with so many runs besides run 0.
using Measurement = std::function<std::vector<Row>(const Configuration&, int runs)>;

// That in a new process of this program, `ch15_speed --child --part task`, with prompt and steps of
// the task (task.h).
Measurement in_new_process(int prompt, int steps);

// Measures what `outcomes` does not hold yet, and adds it there; `after_each` is called after each
// process. After Ctrl-C no more are begun.
void measure_all(
    const std::string& title, const std::vector<Configuration>& configurations, int runs,
    const Measurement& measurement, std::vector<Outcome>& outcomes,
    const std::function<void()>& after_each = [] {});

// One row for each configuration and metric, of all its processes' runs, as rows of that part: in
// the order of `configurations`, then those that only `outcomes` holds. A row's limit is the
// highest that any number of threads has shown. Processes that disagree about the output leave it
// without a hash.
std::vector<Row> merged_rows(const std::string& part,
                             const std::vector<Configuration>& configurations,
                             const std::vector<Outcome>& outcomes);

}  // namespace qwen
