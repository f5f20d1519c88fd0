#include "qwen/results.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <ostream>
#include <sstream>

#include "qwen/file.h"

namespace qwen {
namespace {

template <class T>
OrderedJson or_null(const std::optional<T>& value) {
  return value ? OrderedJson(*value) : OrderedJson();
}

// ---- fields of a row, as they are read ----

// What hash_text has written.
std::uint64_t hash_of(const JsonObject& object, const std::string& key) {
  const std::string text = object.string(key);
  const std::uint64_t value = std::strtoull(text.c_str(), nullptr, 16);
  if (text != hash_text(value)) object.fail(key, "16 hexadecimal digits");
  return value;
}

// A time, a speed, a share.
double measured(const JsonObject& object, const std::string& key) {
  const double value = object.number(key);
  if (value < 0) object.fail(key, "a number from 0");
  return value;
}

std::vector<std::vector<double>> times_of(const JsonObject& object, const std::string& key) {
  const auto is_time = [](const Json& value) { return value.is_number() && value > 0; };
  const auto are_times = [&](const Json& list) {
    return list.is_array() && std::all_of(list.begin(), list.end(), is_time);
  };
  const Json& all = object.array(key);
  if (!std::all_of(all.begin(), all.end(), are_times)) {
    object.fail(key, "a list of lists of numbers above 0");
  }
  return all;
}

std::string figure_or_dash(const std::optional<double>& value) {
  return value ? figure(*value) : "-";
}

bool is_speed(const Row& row) {
  return row.unit.ends_with("/s");
}

}  // namespace

void set_times(Row& row, const Summary& times, double amount) {
  constexpr double kMilliseconds = 1e3;
  row.min = times.min * kMilliseconds;
  row.median = times.median * kMilliseconds;
  row.first = times.first * kMilliseconds;
  row.runs = times.runs;
  row.scattered = times.scattered;
  row.times = times.seconds;
  for (std::vector<double>& process : row.times) {
    for (double& time : process) time *= kMilliseconds;
  }
  row.value = row.unit == "ms" ? *row.min : amount / times.min;
}

std::optional<double> percent_of_limit(const Row& row) {
  if (!row.limit || row.value == 0 || *row.limit == 0) return std::nullopt;
  return 100 * (is_speed(row) ? row.value / *row.limit : *row.limit / row.value);
}

std::string figure(double value) {
  const double size = std::abs(value);
  const int decimals = size == 0 || !std::isfinite(size)
                           ? 0
                           : std::clamp(3 - static_cast<int>(std::floor(std::log10(size))), 0, 3);
  char text[64];
  if (size > 0 && size < 1e-3) {
    std::snprintf(text, sizeof text, "%.2g", value);
  } else {
    std::snprintf(text, sizeof text, "%.*f", decimals, value);
  }
  return text;
}

std::string one_decimal(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string percent(double share) {
  return std::to_string(std::lround(100 * share)) + " %";
}

std::string wrapped(const std::string& text, std::size_t width) {
  std::string lines;
  std::size_t column = 0;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (column > 0 && column + 1 + word.size() > width) {
      lines += '\n';
      column = 0;
    }
    if (column > 0) lines += ' ';
    lines += word;
    column += word.size() + (column > 0);
  }
  return lines;
}

std::string hash_text(std::uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

namespace {

std::string right(const std::string& text, std::size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

std::string or_dash(const std::optional<int>& value) {
  return value ? std::to_string(*value) : "-";
}

// A column that most tables do without: empty unless rows of one metric differ in that field.
class Column {
 public:
  Column(const char* heading, std::optional<int> Row::*field, const std::vector<Row>& rows)
      : heading_(heading), field_(field) {
    std::map<std::string, std::optional<int>> seen;
    for (const Row& row : rows) {
      const auto first = seen.emplace(row.metric, row.*field).first;
      shown_ = shown_ || first->second != row.*field;
    }
  }
  std::string heading() const { return shown_ ? right(heading_, kWidth) : ""; }
  std::string of(const Row& row) const { return shown_ ? right(or_dash(row.*field_), kWidth) : ""; }

 private:
  static constexpr std::size_t kWidth = 8;
  const char* heading_;
  std::optional<int> Row::*field_;
  bool shown_ = false;
};

}  // namespace

std::string table(const std::vector<Row>& rows) {
  std::size_t width = 22;  // of the metrics
  for (const Row& row : rows) width = std::max(width, row.metric.size());
  const Column context("context", &Row::context, rows), batch("batch", &Row::batch, rows);
  std::string text;
  char line[256];
  const auto add = [&](auto... fields) {
    std::snprintf(line, sizeof line, "%-*s %-5s %7s %6s%s %9s %-8s %9s %6s %9s %9s %4s  %s\n",
                  static_cast<int>(width), fields...);
    text += line;
    while (text.size() > 1 && text[text.size() - 2] == ' ') text.erase(text.size() - 2, 1);
  };
  add("metric", "dtype", "threads", "tokens", (context.heading() + batch.heading()).c_str(),
      "value", "unit", "limit", "%", "predicted", "median ms", "runs", "output");
  for (const Row& row : rows) {
    const std::optional<double> reached = percent_of_limit(row);
    char share[16] = "-";
    if (reached) std::snprintf(share, sizeof share, "%.1f", *reached);
    add(row.metric.c_str(), row.dtype.empty() ? "-" : row.dtype.c_str(),
        std::to_string(row.threads).c_str(), or_dash(row.tokens).c_str(),
        (context.of(row) + batch.of(row)).c_str(), figure(row.value).c_str(), row.unit.c_str(),
        figure_or_dash(row.limit).c_str(), share, figure_or_dash(row.predicted).c_str(),
        figure_or_dash(row.median).c_str(),
        (std::to_string(row.runs) + (row.scattered ? "*" : "")).c_str(),
        row.output_hash ? hash_text(*row.output_hash).substr(0, 8).c_str() : "");
  }
  return text;
}

OrderedJson to_json(const Row& row) {
  OrderedJson json;
  json["part"] = row.part;
  json["model"] = row.model.empty() ? OrderedJson() : OrderedJson(row.model);
  json["device"] = row.device;
  json["dtype"] = row.dtype.empty() ? OrderedJson() : OrderedJson(row.dtype);
  json["threads"] = row.threads;
  json["tokens"] = or_null(row.tokens);
  json["context"] = or_null(row.context);
  json["batch"] = or_null(row.batch);
  json["metric"] = row.metric;
  json["value"] = row.value;
  json["unit"] = row.unit;
  json["min"] = or_null(row.min);
  json["median"] = or_null(row.median);
  json["first"] = or_null(row.first);
  json["runs"] = row.runs;
  json["scattered"] = row.scattered;
  json["limit"] = or_null(row.limit);
  json["percent_of_limit"] = or_null(percent_of_limit(row));
  json["predicted"] = or_null(row.predicted);
  json["output_hash"] = row.output_hash ? OrderedJson(hash_text(*row.output_hash)) : OrderedJson();
  json["times"] = row.times;
  return json;
}

OrderedJson to_json(const std::vector<Row>& rows) {
  OrderedJson list = OrderedJson::array();
  for (const Row& row : rows) list.push_back(to_json(row));
  return list;
}

namespace {

Row row_from_json(const Json& json, const std::string& source) {
  const JsonObject object(json, source);
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  const auto text = [&](const char* key) { return object.has(key) ? object.string(key) : ""; };
  const auto whole = [&](const char* key) {
    return static_cast<int>(object.integer(key, 0, kMost));
  };
  const auto whole_or_none = [&](const char* key) {
    return object.has(key) ? std::optional(whole(key)) : std::nullopt;
  };
  const auto number_or_none = [&](const char* key) {
    return object.has(key) ? std::optional(measured(object, key)) : std::nullopt;
  };
  Row row;
  row.part = object.string("part");
  row.model = text("model");
  row.device = object.string("device");
  row.dtype = text("dtype");
  row.threads = whole("threads");
  row.tokens = whole_or_none("tokens");
  row.context = whole_or_none("context");
  row.batch = whole_or_none("batch");
  row.metric = object.string("metric");
  row.value = measured(object, "value");
  row.unit = object.string("unit");
  row.min = number_or_none("min");
  row.median = number_or_none("median");
  row.first = number_or_none("first");
  row.runs = whole("runs");
  row.scattered = object.boolean("scattered");
  row.limit = number_or_none("limit");
  row.predicted = number_or_none("predicted");
  if (object.has("output_hash")) row.output_hash = hash_of(object, "output_hash");
  row.times = times_of(object, "times");
  return row;
}

}  // namespace

std::vector<Row> rows_from_json(const Json& list, const std::string& source) {
  std::vector<Row> rows;
  for (const Json& row : list) {
    rows.push_back(row_from_json(row, element(source, rows.size())));
  }
  return rows;
}

void write_results(const std::string& path, const OrderedJson& meta, const std::vector<Row>& rows) {
  OrderedJson json;
  json["meta"] = meta;
  json["rows"] = to_json(rows);
  write_file(path, [&](std::ostream& file) { file << file_text(json); });
}

}  // namespace qwen
