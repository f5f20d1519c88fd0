// Charts as inline SVG: text in, text out, no script. Colours and fonts come from the page's style
// sheet (report.cpp), so that a chart is right in the light, in the dark and on paper.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace qwen {

// With &, <, >, " and ' as entities, and without characters that XML forbids.
std::string escaped(const std::string& text);

struct Bar {
  std::string label;
  double value = 0;
  std::string shown;                       // the value as text
  std::optional<double> limit, predicted;  // drawn as a line and as a diamond
};

// One bar below the other, each under its label; all from 0, on one scale.
std::string bar_chart(const std::string& title, const std::vector<Bar>& bars);

struct Line {
  std::string label;
  std::vector<std::pair<double, double>> points;  // by ascending x
};

// Lines over a common pair of axes. An axis is logarithmic where all its values are positive and
// the largest is more than 8 times the smallest.
std::string line_chart(const std::string& title, const std::string& x_name,
                       const std::vector<Line>& lines);

}  // namespace qwen
