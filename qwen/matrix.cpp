#include "qwen/matrix.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <ostream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "qwen/file.h"

namespace qwen {
namespace {

// Figures can stand in one table where all of these are the same.
constexpr const char* kMustAgree[] = {"cpu",    "logical_cpus", "system", "compiler",
                                      "kernel", "blas_kernel",  "prompt", "steps",
                                      "runs",   "git_revision"};

OrderedJson to_json(const Outcome& outcome) {
  OrderedJson json;
  json["model"] = outcome.configuration.model;
  json["dtype"] = outcome.configuration.dtype;
  json["device"] = outcome.configuration.device;
  json["threads"] = outcome.configuration.threads;
  json["process"] = outcome.process;
  json["rows"] = to_json(outcome.rows);
  return json;
}

// Of one process: each row is timed, as merged_rows needs it, and each is of another metric.
std::vector<Row> rows_of_process(const Json& list, const std::string& source) {
  const std::vector<Row> rows = rows_from_json(list, source);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const JsonObject row(list[i], element(source, i));
    if (rows[i].value == 0) row.fail("value", "a number above 0");
    if (rows[i].min.value_or(0) == 0) row.fail("min", "a number above 0");
    if (rows[i].times.size() != 1 || rows[i].times[0].empty()) {
      row.fail("times", "a list with one list, the times of this process");
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (rows[j].metric == rows[i].metric) row.fail("metric", "one that no other row has");
    }
  }
  return rows;
}

Outcome outcome_from_json(const Json& json, const std::string& source) {
  const JsonObject object(json, source);
  constexpr int kMost = std::numeric_limits<int>::max();
  Outcome outcome;
  outcome.configuration = {object.string("model"), object.string("dtype"), object.string("device"),
                           static_cast<int>(object.integer("threads", 1, kMost))};
  outcome.process = static_cast<int>(object.integer("process", 0, kProcesses - 1));
  outcome.rows = rows_of_process(object.array("rows"), source + ": rows");
  return outcome;
}

}  // namespace

std::vector<Row> matrix_rows(const std::vector<Configuration>& configurations,
                             const std::vector<Outcome>& outcomes) {
  std::vector<Row> rows = merged_rows("matrix", configurations, outcomes);
  std::erase_if(rows,
                [](const Row& row) { return row.metric != "prefill" && row.metric != "decode"; });
  return rows;
}

void write_matrix(const std::string& path, const OrderedJson& meta,
                  const std::vector<Configuration>& configurations,
                  const std::vector<Outcome>& outcomes) {
  OrderedJson json;
  json["meta"] = meta;
  json["rows"] = to_json(matrix_rows(configurations, outcomes));
  json["processes"] = OrderedJson::array();
  for (const Outcome& outcome : outcomes) json["processes"].push_back(to_json(outcome));
  write_file(path, [&](std::ostream& file) { file << file_text(json); });
}

std::vector<Outcome> read_matrix(const std::string& path, const OrderedJson& meta) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  const auto refuse = [&](const std::string& why) {
    return std::runtime_error(path + ": " + why + "; give --json another file, or delete this one");
  };
  const Json json = read_json(path);
  const JsonObject file(json, path);
  if (!file.has("meta") || !file.has("processes")) {
    throw refuse("it exists, and is no matrix that could be continued");
  }
  const JsonObject found = file.object("meta");
  for (const char* key : kMustAgree) {
    const Json now = Json::parse(file_text(meta.at(key)));
    const Json then = found.has(key) ? found.value()[key] : Json();
    if (then != now) {
      throw refuse("its figures were measured with " + std::string(key) + " " + shown(then) +
                   ", this is " + shown(now));
    }
  }
  std::vector<Outcome> outcomes;
  for (const Json& process : file.array("processes")) {
    const std::string place = element(path + ": processes", outcomes.size());
    Outcome outcome = outcome_from_json(process, place);
    if (is_done(outcomes, outcome.configuration, outcome.process)) {
      JsonObject(process, place).fail("process", "another one than before of this configuration");
    }
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

std::string matrix_table(const std::vector<Row>& rows) {
  std::size_t longest = std::string("model").size();
  for (const Row& row : rows) longest = std::max(longest, row.model.size());
  std::string text;
  char line[512];
  const auto add = [&](const std::string& model, auto... fields) {
    text += model + std::string(longest - model.size(), ' ');
    std::snprintf(line, sizeof line, " %-5s %-6s %7s %-8s %9s %6s %9s %9s %9s %5s  %s", fields...);
    text += line;
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  };
  const auto or_dash = [](const std::optional<double>& value) {
    return value ? figure(*value) : "-";
  };
  add("model", "dtype", "device", "threads", "phase", "tok/s", "%", "min ms", "median ms",
      "run 0 ms", "runs", "output");
  for (const Row& row : rows) {
    const std::optional<double> reached = percent_of_limit(row);
    add(row.model, row.dtype.c_str(), row.device.c_str(), std::to_string(row.threads).c_str(),
        row.metric.c_str(), figure(row.value).c_str(),
        (reached ? one_decimal(*reached) : "-").c_str(), or_dash(row.min).c_str(),
        or_dash(row.median).c_str(), or_dash(row.first).c_str(),
        (std::to_string(row.runs) + (row.scattered ? "*" : "")).c_str(),
        row.output_hash ? hash_text(*row.output_hash).substr(0, 8).c_str() : "differs");
  }
  return text;
}

namespace {

const Row* fastest(const std::vector<Row>& rows, const std::string& model,
                   const std::string& metric) {
  const Row* best = nullptr;
  for (const Row& row : rows) {
    if (row.model != model || row.metric != metric) continue;
    if (!best || row.value > best->value) best = &row;
  }
  return best;
}

std::string named(const Row& row) {
  return figure(row.value) + " tok/s in " + row.dtype + " with " + std::to_string(row.threads) +
         (row.threads == 1 ? " thread" : " threads");
}

// Whether the same model in the same dtype writes the same tokens everywhere.
bool outputs_agree(const std::vector<Row>& rows) {
  const auto agree = [](const Row& a, const Row& b) {
    const bool same = a.model == b.model && a.dtype == b.dtype && a.metric == b.metric;
    return !same || (a.output_hash && a.output_hash == b.output_hash);
  };
  return std::all_of(rows.begin(), rows.end(), [&](const Row& a) {
    return std::all_of(rows.begin(), rows.end(), [&](const Row& b) { return agree(a, b); });
  });
}

}  // namespace

std::string matrix_conclusion(const std::vector<Row>& rows) {
  std::vector<std::string> models;
  for (const Row& row : rows) {
    const bool known = std::find(models.begin(), models.end(), row.model) != models.end();
    if (!known) models.push_back(row.model);
  }
  std::string text;
  for (const std::string& model : models) {
    const Row* prefill = fastest(rows, model, "prefill");
    const Row* decode = fastest(rows, model, "decode");
    if (!prefill || !decode) continue;
    text +=
        model + ": prefill up to " + named(*prefill) + ", decode up to " + named(*decode) + ". ";
  }
  if (text.empty()) return "";
  return text + (outputs_agree(rows)
                     ? "All processes and teams write the same tokens in the same dtype."
                     : "PROCESSES OR TEAMS WRITE DIFFERENT TOKENS IN THE SAME DTYPE.");
}

}  // namespace qwen
