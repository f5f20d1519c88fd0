#include "qwen/results.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>

#include "qwen/file.h"

namespace qwen {
namespace {

template <class T>
OrderedJson or_null(const std::optional<T>& value) {
  return value ? OrderedJson(*value) : OrderedJson();
}

std::string hex(std::uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
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
  row.value = row.unit == "ms" ? *row.min : amount / times.min;
}

std::optional<double> percent_of_limit(const Row& row) {
  if (!row.limit || row.value == 0 || *row.limit == 0) return std::nullopt;
  return 100 * (is_speed(row) ? row.value / *row.limit : *row.limit / row.value);
}

std::string figure(double value) {
  const double size = std::abs(value);
  const int decimals =
      size == 0 ? 0 : std::clamp(3 - static_cast<int>(std::floor(std::log10(size))), 0, 3);
  char text[64];
  if (size > 0 && size < 1e-3) {
    std::snprintf(text, sizeof text, "%.2g", value);
  } else {
    std::snprintf(text, sizeof text, "%.*f", decimals, value);
  }
  return text;
}

std::string percent(double share) {
  return std::to_string(std::lround(100 * share)) + " %";
}

std::string table(const std::vector<Row>& rows) {
  std::string text;
  char line[256];
  const auto add = [&](auto... fields) {
    std::snprintf(line, sizeof line, "%-22s %-5s %7s %6s %9s %-8s %9s %6s %9s %9s %4s  %s\n",
                  fields...);
    text += line;
    while (text.size() > 1 && text[text.size() - 2] == ' ') text.erase(text.size() - 2, 1);
  };
  add("metric", "dtype", "threads", "tokens", "value", "unit", "limit", "%", "predicted",
      "median ms", "runs", "output");
  for (const Row& row : rows) {
    const std::optional<double> reached = percent_of_limit(row);
    char share[16] = "-";
    if (reached) std::snprintf(share, sizeof share, "%.1f", *reached);
    add(row.metric.c_str(), row.dtype.empty() ? "-" : row.dtype.c_str(),
        std::to_string(row.threads).c_str(), row.tokens ? std::to_string(*row.tokens).c_str() : "-",
        figure(row.value).c_str(), row.unit.c_str(), figure_or_dash(row.limit).c_str(), share,
        figure_or_dash(row.predicted).c_str(), figure_or_dash(row.median).c_str(),
        (std::to_string(row.runs) + (row.scattered ? "*" : "")).c_str(),
        row.output_hash ? hex(*row.output_hash).substr(0, 8).c_str() : "");
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
  json["output_hash"] = row.output_hash ? OrderedJson(hex(*row.output_hash)) : OrderedJson();
  return json;
}

void write_results(const std::string& path, const OrderedJson& meta, const std::vector<Row>& rows) {
  OrderedJson json;
  json["meta"] = meta;
  json["rows"] = OrderedJson::array();
  for (const Row& row : rows) json["rows"].push_back(to_json(row));
  write_file(path, [&](std::ostream& file) { file << json.dump(2) << '\n'; });
}

}  // namespace qwen
