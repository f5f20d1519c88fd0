#include "qwen/speed_matrix.h"

#include <cstdio>
#include <filesystem>
#include <stdexcept>

#include "qwen/counted.h"
#include "qwen/interrupt.h"
#include "qwen/machine.h"
#include "qwen/matrix.h"
#include "qwen/report.h"
#include "qwen/speed_check.h"

namespace qwen {
namespace {

// What --model of another process takes, whatever folder that is started in. Throws for what is no
// model, before anything is measured.
std::string checked_model(const std::string& asked) {
  const ModelSource source = choose_model(asked);
  return source.path.empty() ? source.asked
                             : std::filesystem::absolute(source.path).lexically_normal().string();
}

std::vector<Configuration> configurations_of(const SpeedOptions& options) {
  std::vector<std::string> models = options.models;
  if (models.empty()) models = {chosen_model(options)};
  for (std::string& model : models) model = checked_model(model);
  const auto or_all = [](const auto& given, const auto& all) {
    return given.empty() ? all : given;
  };
  return all_configurations(
      models, or_all(options.dtypes, std::vector<std::string>{"f32", "bf16", "f16"}),
      options.devices, or_all(options.threads, std::vector<int>{default_threads().count}));
}

void print_heading(const OrderedJson& meta, std::size_t configurations, std::size_t done) {
  std::printf("%s", describe(meta).c_str());
  std::printf("matrix: prefill %s, decode %d; %s, each in %d processes, ",
              counted(meta["prompt"].get<int>(), "token").c_str(), meta["steps"].get<int>(),
              counted(configurations, "configuration").c_str(), kProcesses);
  std::printf("%s in all besides their first ones\n",
              counted(meta["runs"].get<int>(), "run").c_str());
  if (done > 0) std::printf("%zu of the processes were finished before\n", done);
  std::printf("load average %.2f\n", load_average());
  std::fflush(stdout);
}

}  // namespace

void measure_matrix(const SpeedOptions& options) {
  const std::vector<Configuration> configurations = configurations_of(options);
  const int prompt = options.prompt.value_or(203), steps = options.steps.value_or(128);
  OrderedJson meta = record_of("matrix", prompt, steps, options.runs.value_or(10));
  std::vector<Outcome> outcomes;
  const auto save = [&] {
    if (!options.json.empty()) write_matrix(options.json, meta, configurations, outcomes);
  };
  if (!options.json.empty()) outcomes = read_matrix(options.json, meta);
  save();  // better to fail now
  print_heading(meta, configurations.size(), outcomes.size());
  check_results(default_threads().count);

  measure_all("matrix", configurations, meta["runs"], in_new_process(prompt, steps), outcomes,
              save);
  meta["load_after"] = load_average();
  meta["interrupted"] = interrupted();
  save();
  const std::vector<Row> rows = matrix_rows(configurations, outcomes);
  const std::string conclusion = matrix_conclusion(rows);
  std::printf("\n%s%s\nload average %.2f\n", matrix_table(rows).c_str(), conclusion.c_str(),
              load_average());
  if (!options.report.empty()) {
    write_report(options.report, meta,
                 {{"matrix", "which model, which type, how many threads?", conclusion}}, rows);
  }
}

}  // namespace qwen
