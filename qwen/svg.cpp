#include "qwen/svg.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

namespace qwen {
namespace {

// All lengths are in units of the drawing, which is as wide as a phone's screen and is scaled to
// the page: so text is never smaller than it looks there.
constexpr double kWidth = 400;

// "12.5", always with a decimal point
std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  std::replace(text, text + sizeof text, ',', '.');
  return text;
}

// "M12.5 3.0": where a path begins, or goes on to.
std::string point(const std::string& command, double x, double y) {
  return command + number(x) + " " + number(y);
}

using Attributes = std::vector<std::pair<const char*, std::string>>;

// <name a="…" b="…"/>, or with a text <name a="…">text</name>
std::string element(const char* name, const Attributes& attributes, const std::string& text = "") {
  std::string tag = std::string("<") + name;
  for (const auto& [key, value] : attributes) {
    tag += std::string(" ") + key + "=\"" + escaped(value) + "\"";
  }
  if (text.empty()) return tag + "/>\n";
  return tag + ">" + escaped(text) + "</" + name + ">\n";
}

std::string text_at(double x, double y, const std::string& kind, const std::string& text) {
  return element("text", {{"x", number(x)}, {"y", number(y)}, {"class", kind}}, text);
}

std::string line_from(double x1, double y1, double x2, double y2, const std::string& kind) {
  return element("line", {{"x1", number(x1)},
                          {"y1", number(y1)},
                          {"x2", number(x2)},
                          {"y2", number(y2)},
                          {"class", kind}});
}

std::string rectangle(double x, double y, double width, double height, const std::string& kind) {
  return element("rect", {{"x", number(x)},
                          {"y", number(y)},
                          {"width", number(std::max(width, 0.0))},
                          {"height", number(height)},
                          {"class", kind}});
}

std::string drawing(double height, const std::string& title, const std::string& content) {
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + number(kWidth) + " " +
         number(height) + "\" role=\"img\" aria-label=\"" + escaped(title) + "\">\n" + content +
         "</svg>\n";
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= ' ' || c == '\n' || c == '\t') out += c;
    }
  }
  return out;
}

std::string bar_chart(const std::string& title, const std::vector<Bar>& bars) {
  constexpr double kHeading = 24, kEach = 34, kThickness = 10;
  double longest = 0;
  for (const Bar& bar : bars) {
    longest = std::max({longest, bar.value, bar.limit.value_or(0), bar.predicted.value_or(0)});
  }
  const auto length = [&](double value) { return longest > 0 ? value / longest * kWidth : 0; };

  std::string content = text_at(0, 13, "title", title);
  double y = kHeading;
  for (const Bar& bar : bars) {
    content += text_at(0, y + 12, "label", bar.label);
    content += text_at(kWidth, y + 12, "value", bar.shown);
    const double top = y + 17, middle = top + kThickness / 2;
    if (bar.limit) content += rectangle(0, top, length(*bar.limit), kThickness, "room");
    content += rectangle(0, top, length(bar.value), kThickness, "bar");
    if (bar.limit) {
      // Its whole thickness is within the drawing.
      const double x = std::clamp(length(*bar.limit), 1.0, kWidth - 1);
      content += line_from(x, top - 2, x, top + kThickness + 2, "limit");
    }
    if (bar.predicted) {
      const double x = std::clamp(length(*bar.predicted), 4.0, kWidth - 4);
      content += element(
          "path", {{"d", point("M", x, middle - 4) + "l4 4l-4 4l-4 -4z"}, {"class", "predicted"}});
    }
    y += kEach;
  }
  return drawing(y + 2, title, content);
}

namespace {

// From values to places on the drawing.
class Axis {
 public:
  Axis(double lowest, double highest, double from, double to) : from_(from), to_(to) {
    is_logarithmic_ = lowest > 0 && highest > 8 * lowest;
    low_ = is_logarithmic_ ? lowest : std::min(lowest, 0.0);
    high_ = highest > low_ ? highest : low_ + 1;
  }

  double place(double value) const {
    return from_ + (to_ - from_) * (scaled(value) - scaled(low_)) / (scaled(high_) - scaled(low_));
  }

  // Round values within it, 1, 2 and 5 times powers of ten; of a long axis the powers alone.
  std::vector<double> ticks() const {
    const double decades = std::log10(high_) - std::log10(std::max(low_, high_ * 1e-9));
    const double step = std::pow(10, std::floor(std::log10((high_ - low_) / 2)));
    std::vector<double> found;
    if (!is_logarithmic_) {
      const double each = (high_ - low_) / step > 5 ? 2 * step : step;
      for (double t = std::ceil(low_ / each) * each; t <= high_ * 1.0001; t += each) {
        found.push_back(t);
      }
      return found;
    }
    for (double power = std::pow(10, std::floor(std::log10(low_))); power <= high_; power *= 10) {
      for (const double factor : {1, 2, 5}) {
        const bool wanted = factor == 1 || decades < 2.5;
        const double tick = factor * power;
        if (wanted && tick >= low_ * 0.999 && tick <= high_ * 1.001) found.push_back(tick);
      }
    }
    return found;
  }

 private:
  double scaled(double value) const { return is_logarithmic_ ? std::log(value) : value; }

  bool is_logarithmic_;
  double low_, high_, from_, to_;
};

// "0.05", "20", "4k"
std::string tick_text(double value) {
  char text[32];
  if (value >= 10000) {
    std::snprintf(text, sizeof text, "%.3gk", value / 1000);
  } else {
    std::snprintf(text, sizeof text, "%.4g", value);
  }
  return text;
}

// The class that gives a line its colour.
std::string series(std::size_t which) {
  constexpr std::size_t kColours = 6;
  return std::string("series").append(std::to_string(which % kColours));
}

// The marks of a point differ, too: on paper, and for those who see colours differently.
std::string mark(double x, double y, std::size_t which, const std::string& kind) {
  const std::string at = point("M", x, y);
  const char* shapes[] = {"m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z", "m-3 -3h6v6h-6z", "m0 -4l4 7h-8z",
                          "m0 -4l4 4l-4 4l-4 -4z"};
  return element("path",
                 {{"d", at + shapes[which % std::size(shapes)]}, {"class", "mark " + kind}});
}

// Names of the lines, one below the other under the chart.
std::string legend(const std::vector<Line>& lines, double top, double each) {
  std::string content;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const double y = top + each * static_cast<double>(i);
    const std::string kind = series(i);
    content += line_from(0, y, 24, y, "curve " + kind) + mark(12, y, i, kind);
    content += text_at(32, y + 4, "label", lines[i].label);
  }
  return content;
}

}  // namespace

std::string line_chart(const std::string& title, const std::string& x_name,
                       const std::vector<Line>& lines) {
  constexpr double kLeft = 40, kTop = 28, kBottom = 218, kLegend = 270, kLegendEach = 18,
                   kTextWidth = 34;
  std::set<double> xs, ys;
  for (const Line& line : lines) {
    for (const auto& [x, y] : line.points) {
      xs.insert(x);
      ys.insert(y);
    }
  }
  if (xs.empty()) return "";
  const Axis across(*xs.begin(), *xs.rbegin(), kLeft, kWidth - 14);
  const Axis up(*ys.begin(), *ys.rbegin(), kBottom, kTop);

  std::string content = text_at(0, 13, "title", title);
  for (const double tick : up.ticks()) {
    content += line_from(kLeft, up.place(tick), kWidth, up.place(tick), "grid");
    content += text_at(kLeft - 6, up.place(tick) + 4, "tick end", tick_text(tick));
  }
  // Along x the measured values themselves, where their texts do not meet.
  double last = -INFINITY;
  for (const double x : xs) {
    if (across.place(x) - last < kTextWidth) continue;
    last = across.place(x);
    content += line_from(last, kTop, last, kBottom, "grid");
    content += text_at(last, kBottom + 16, "tick middle", tick_text(x));
  }
  content += text_at(kWidth, kBottom + 34, "tick end", x_name);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string kind = series(i);
    std::string path, marks;
    for (const auto& [x, y] : lines[i].points) {
      path += point(path.empty() ? "M" : "L", across.place(x), up.place(y));
      marks += mark(across.place(x), up.place(y), i, kind);
    }
    if (path.empty()) continue;
    content += element("path", {{"d", path}, {"class", "curve " + kind}}) + marks;
  }
  content += legend(lines, kLegend, kLegendEach);
  return drawing(kLegend + kLegendEach * static_cast<double>(lines.size()), title, content);
}

}  // namespace qwen
