#include "qwen/charts.h"

#include <algorithm>
#include <functional>
#include <set>

#include "qwen/svg.h"

namespace qwen {
namespace {

// What a row may differ in from its neighbours, as a label says it; empty where it does not apply.
struct Aspect {
  const char* name;
  std::function<std::string(const Row&)> text;
};

std::string counted(const std::optional<int>& count, const std::string& what) {
  return count ? std::to_string(*count) + " " + what + (*count == 1 ? "" : "s") : "";
}

const std::vector<Aspect>& aspects() {
  static const std::vector<Aspect> all = {
      {"metric", [](const Row& row) { return row.metric; }},
      {"model", [](const Row& row) { return row.model; }},
      {"dtype", [](const Row& row) { return row.dtype; }},
      {"device", [](const Row& row) { return row.device; }},
      {"threads", [](const Row& row) { return counted(row.threads, "thread"); }},
      {"tokens", [](const Row& row) { return counted(row.tokens, "token"); }},
      {"context",
       [](const Row& row) { return row.context ? "after " + counted(row.context, "token") : ""; }},
      {"batch",
       [](const Row& row) { return row.batch ? "batch " + std::to_string(*row.batch) : ""; }},
  };
  return all;
}

bool varies(const std::vector<Row>& rows, const Aspect& aspect) {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const Row& row) { return aspect.text(row) != aspect.text(rows[0]); });
}

// "bf16, 2 threads": all in which the rows differ, but for the axis.
std::string label(const Row& row, const std::vector<Row>& rows, const std::string& axis = "") {
  std::string text;
  for (const Aspect& aspect : aspects()) {
    const std::string part = aspect.text(row);
    if (aspect.name == axis || part.empty() || !varies(rows, aspect)) continue;
    text += (text.empty() ? "" : ", ") + part;
  }
  return text.empty() ? row.metric : text;
}

struct XAxis {
  const char* name;
  std::optional<int> Row::*value;
};
constexpr XAxis kAxes[] = {
    {"tokens", &Row::tokens}, {"context", &Row::context}, {"batch", &Row::batch}};

// The axis with the most values, three at least; nullptr for none.
const XAxis* axis_of(const std::vector<Row>& rows) {
  const XAxis* best = nullptr;
  std::size_t most = 2;
  for (const XAxis& axis : kAxes) {
    std::set<int> values;
    for (const Row& row : rows) {
      if (row.*axis.value) values.insert(*(row.*axis.value));
    }
    if (values.size() > most) {
      most = values.size();
      best = &axis;
    }
  }
  return best;
}

std::string title(const std::vector<Row>& rows) {
  const bool one_metric = !varies(rows, aspects()[0]);
  return one_metric ? rows[0].metric + ", " + rows[0].unit : "in " + rows[0].unit;
}

std::string lines_over(const XAxis& axis, const std::vector<Row>& rows) {
  std::vector<Line> lines;
  for (const Row& row : rows) {
    if (!(row.*axis.value)) continue;
    const std::string name = label(row, rows, axis.name);
    auto line = std::find_if(lines.begin(), lines.end(),
                             [&](const Line& known) { return known.label == name; });
    if (line == lines.end()) line = lines.insert(lines.end(), {name, {}});
    line->points.push_back({*(row.*axis.value), row.value});
  }
  for (Line& line : lines) std::sort(line.points.begin(), line.points.end());
  return line_chart(title(rows), axis.name, lines);
}

std::string bars_of(const std::vector<Row>& rows) {
  std::vector<Bar> bars;
  for (const Row& row : rows) {
    bars.push_back({label(row, rows), row.value,
                    figure(row.value) + " " + row.unit + (row.scattered ? " *" : ""), row.limit,
                    row.predicted});
  }
  return bar_chart(title(rows), bars);
}

// The rows for which the key is the same, in groups, by first appearance.
std::vector<std::vector<Row>> grouped(const std::vector<Row>& rows, std::string Row::*key) {
  std::vector<std::vector<Row>> groups;
  for (const Row& row : rows) {
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const auto& group) { return group[0].*key == row.*key; });
    if (same == groups.end()) {
      groups.push_back({row});
    } else {
      same->push_back(row);
    }
  }
  return groups;
}

}  // namespace

std::vector<std::string> charts(const std::vector<Row>& rows) {
  std::vector<std::string> drawings;
  for (const std::vector<Row>& in_unit : grouped(rows, &Row::unit)) {
    if (const XAxis* axis = axis_of(in_unit)) {
      drawings.push_back(lines_over(*axis, in_unit));
      continue;
    }
    std::vector<Row> single;
    for (const std::vector<Row>& of_metric : grouped(in_unit, &Row::metric)) {
      if (of_metric.size() == 1) single.push_back(of_metric[0]);
      if (of_metric.size() > 1) drawings.push_back(bars_of(of_metric));
    }
    if (single.size() > 1) drawings.push_back(bars_of(single));
  }
  return drawings;
}

}  // namespace qwen
