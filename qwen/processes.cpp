#include "qwen/processes.h"

#include <algorithm>
#include <filesystem>
#include <random>

#include "qwen/interrupt.h"
#include "qwen/process.h"
#include "qwen/progress.h"

namespace qwen {

bool Configuration::operator==(const Configuration& other) const {
  const auto in_a_file = [](const Configuration& c) { return file_text(c.model); };
  return in_a_file(*this) == in_a_file(other) && dtype == other.dtype && device == other.device &&
         threads == other.threads;
}

std::vector<Configuration> all_configurations(const std::vector<std::string>& models,
                                              const std::vector<std::string>& dtypes,
                                              const std::vector<std::string>& devices,
                                              const std::vector<int>& threads) {
  std::vector<Configuration> all;
  for (const std::string& model : models) {
    for (const std::string& dtype : dtypes) {
      for (const std::string& device : devices) {
        for (const int count : threads) {
          const Configuration next{model, dtype, device, count};
          if (std::find(all.begin(), all.end(), next) == all.end()) all.push_back(next);
        }
      }
    }
  }
  return all;
}

int runs_of_process(int runs, int process) {
  return runs / kProcesses + (process < runs % kProcesses);
}

Measurement in_new_process(int prompt, int steps) {
  return [=](const Configuration& configuration, int runs) {
    const std::string printed =
        run_process({own_path(), "--child", "--part", "task", "--model", configuration.model,
                     "--dtype", configuration.dtype, "--device", configuration.device, "--threads",
                     std::to_string(configuration.threads), "--prompt", std::to_string(prompt),
                     "--steps", std::to_string(steps), "--runs", std::to_string(runs)});
    const std::string source = "ch15_speed --child";
    return rows_from_json(parse_json(printed, source), source);
  };
}

bool is_done(const std::vector<Outcome>& outcomes, const Configuration& configuration,
             int process) {
  return std::any_of(outcomes.begin(), outcomes.end(), [&](const Outcome& outcome) {
    return outcome.configuration == configuration && outcome.process == process;
  });
}

namespace {

// What is still to be done, in an order that favours none: every configuration once, shuffled,
// then all of them again.
std::vector<Outcome> left_to_do(std::vector<Configuration> configurations,
                                const std::vector<Outcome>& outcomes) {
  std::mt19937 random(1);
  std::vector<Outcome> left;
  for (int process = 0; process < kProcesses; ++process) {
    std::shuffle(configurations.begin(), configurations.end(), random);
    for (const Configuration& configuration : configurations) {
      if (!is_done(outcomes, configuration, process)) left.push_back({configuration, process, {}});
    }
  }
  return left;
}

std::string name_of(const Configuration& configuration) {
  return std::filesystem::path(configuration.model).filename().string() + " " +
         configuration.dtype + ", " + configuration.device + ", threads " +
         std::to_string(configuration.threads);
}

}  // namespace

void measure_all(const std::string& title, const std::vector<Configuration>& configurations,
                 int runs, const Measurement& measurement, std::vector<Outcome>& outcomes,
                 const std::function<void()>& after_each) {
  std::vector<Outcome> left = left_to_do(configurations, outcomes);
  Progress progress(title, left.size());
  for (std::size_t i = 0; i < left.size() && !interrupted(); ++i) {
    Outcome& next = left[i];
    progress.show("process " + std::to_string(i + 1) + " of " + std::to_string(left.size()),
                  name_of(next.configuration));
    try {
      next.rows = measurement(next.configuration, runs_of_process(runs, next.process));
    } catch (const Interrupted&) {
      return;
    }
    outcomes.push_back(std::move(next));
    progress.step();
    after_each();
  }
}

namespace {

using Figure = std::optional<double>;

Figure larger(const Figure& a, const Figure& b) {
  return a && b ? std::max(*a, *b) : a ? a : b;
}

// One row of all of them, which differ in their runs alone.
Row merged(const std::vector<const Row*>& rows) {
  constexpr double kMilliseconds = 1e3;
  Row all = *rows[0];
  std::vector<std::vector<Run>> processes;
  for (const Row* row : rows) {
    for (const std::vector<double>& process : row->times) {
      processes.emplace_back();
      for (const double time : process) processes.back().push_back({{time / kMilliseconds}});
    }
    all.limit = larger(all.limit, row->limit);
    all.predicted = larger(all.predicted, row->predicted);
    if (row->output_hash != rows[0]->output_hash) all.output_hash.reset();
  }
  const double amount = all.value * *all.min / kMilliseconds;
  set_times(all, summarise_processes(processes), amount);
  return all;
}

void add_merged(std::vector<Row>& rows, const Configuration& configuration,
                const std::vector<Outcome>& outcomes) {
  std::vector<std::vector<const Row*>> by_metric;
  for (const Outcome& outcome : outcomes) {
    if (!(outcome.configuration == configuration)) continue;
    for (const Row& row : outcome.rows) {
      const auto same = std::find_if(by_metric.begin(), by_metric.end(), [&](const auto& known) {
        return known[0]->metric == row.metric;
      });
      if (same == by_metric.end()) {
        by_metric.push_back({&row});
      } else {
        same->push_back(&row);
      }
    }
  }
  for (const std::vector<const Row*>& same : by_metric) rows.push_back(merged(same));
}

// Whether two rows are the same measurement by teams of different size.
bool same_but_threads(const Row& a, const Row& b) {
  return a.model == b.model && a.dtype == b.dtype && a.device == b.device && a.metric == b.metric;
}

}  // namespace

std::vector<Row> merged_rows(const std::string& part,
                             const std::vector<Configuration>& configurations,
                             const std::vector<Outcome>& outcomes) {
  std::vector<Configuration> all = configurations;
  for (const Outcome& outcome : outcomes) {
    if (std::find(all.begin(), all.end(), outcome.configuration) == all.end()) {
      all.push_back(outcome.configuration);
    }
  }
  std::vector<Row> rows;
  for (const Configuration& configuration : all) add_merged(rows, configuration, outcomes);
  for (Row& row : rows) {
    row.part = part;
    for (const Row& other : rows) {
      if (same_but_threads(row, other)) row.limit = larger(row.limit, other.limit);
    }
  }
  return rows;
}

}  // namespace qwen
