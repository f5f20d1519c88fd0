#include "qwen/charts.h"

#include <algorithm>
#include <functional>
#include <set>

#include "qwen/counted.h"
#include "qwen/svg.h"

namespace qwen {
namespace {

// What a row may differ in from its neighbours, as a label says it; empty where it does not apply.
struct Aspect {
  const char* name;
  std::function<std::string(const Row&)> text;
};

std::string counted(const std::optional<int>& count, const std::string& noun) {
  return count ? qwen::counted(*count, noun) : "";
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

// "bf16, 2 threads": all in which the rows differ, but for what `leave_out` names.
std::string label(const Row& row, const std::vector<Row>& rows,
                  const std::set<std::string>& leave_out = {}) {
  std::string text;
  for (const Aspect& aspect : aspects()) {
    const std::string part = aspect.text(row);
    if (leave_out.count(aspect.name) || part.empty() || !varies(rows, aspect)) continue;
    text += (text.empty() ? "" : ", ") + part;
  }
  return text;
}

struct XAxis {
  const char* name;
  std::optional<int> Row::*value;
};
constexpr XAxis kAxes[] = {
    {"batch", &Row::batch}, {"context", &Row::context}, {"tokens", &Row::tokens}};

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

std::string lines_over(const XAxis& axis, const std::string& title, const std::vector<Row>& rows) {
  std::vector<Line> lines;
  for (const Row& row : rows) {
    if (!(row.*axis.value)) continue;
    // A longer context or a larger batch changes the number of tokens, too: one axis is enough.
    std::string name = label(row, rows, {"tokens", "context", "batch"});
    if (name.empty()) name = row.metric;
    auto line = std::find_if(lines.begin(), lines.end(),
                             [&](const Line& known) { return known.label == name; });
    if (line == lines.end()) line = lines.insert(lines.end(), {name, {}});
    line->points.push_back({*(row.*axis.value), row.value});
  }
  for (Line& line : lines) std::sort(line.points.begin(), line.points.end());
  return line_chart(title, axis.name, lines);
}

std::string bars_of(const std::string& title, const std::vector<Row>& rows) {
  std::vector<Bar> bars;
  for (const Row& row : rows) {
    const std::string name = label(row, rows);
    bars.push_back({name.empty() ? row.metric : name, row.value,
                    figure(row.value) + " " + row.unit + (row.scattered ? " *" : ""), row.limit,
                    row.predicted});
  }
  return bar_chart(title, bars);
}

using Group = std::pair<std::string, std::vector<Row>>;

// The rows of each key, by first appearance.
std::vector<Group> grouped(const std::vector<Row>& rows,
                           const std::function<std::string(const Row&)>& key) {
  std::vector<Group> groups;
  for (const Row& row : rows) {
    const std::string own = key(row);
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const Group& known) { return known.first == own; });
    if (group == groups.end()) group = groups.insert(groups.end(), {own, {}});
    group->second.push_back(row);
  }
  return groups;
}

// A chart for each metric, whose bars differ in the rest; or, of many metrics, a chart for each
// combination of the rest, whose bars are the metrics. What would stand alone shares a last one.
std::vector<std::string> bars_by_group(const std::string& unit, const std::vector<Row>& rows) {
  constexpr std::size_t kManyMetrics = 4;
  std::vector<Group> groups = grouped(rows, [](const Row& row) { return row.metric; });
  const std::vector<Group> by_rest =
      grouped(rows, [&](const Row& row) { return label(row, rows, {"metric"}); });
  if (groups.size() >= kManyMetrics && groups.size() > by_rest.size()) groups = by_rest;

  std::vector<std::string> drawings;
  std::vector<Row> alone;
  for (const auto& [key, group] : groups) {
    if (group.size() == 1) {
      alone.push_back(group[0]);
    } else {
      drawings.push_back(bars_of(key.empty() ? "in " + unit : key + ", " + unit, group));
    }
  }
  if (alone.size() > 1) drawings.push_back(bars_of("in " + unit, alone));
  return drawings;
}

}  // namespace

std::vector<std::string> charts(const std::vector<Row>& rows) {
  std::vector<std::string> drawings;
  for (const auto& [unit, in_unit] : grouped(rows, [](const Row& row) { return row.unit; })) {
    if (const XAxis* axis = axis_of(in_unit)) {
      drawings.push_back(lines_over(*axis, "in " + unit, in_unit));
    } else {
      for (const std::string& drawing : bars_by_group(unit, in_unit)) drawings.push_back(drawing);
    }
  }
  return drawings;
}

}  // namespace qwen
