#include "qwen/report.h"

#include <algorithm>
#include <functional>
#include <ostream>
#include <sstream>

#include "qwen/charts.h"
#include "qwen/file.h"
#include "qwen/machine_record.h"
#include "qwen/svg.h"

namespace qwen {
namespace {

// Colours have names, so that the dark is a second list of them; paper takes the first.
constexpr const char* kStyle = R"css(
:root {
  --paper: #fdfcf9; --ink: #22211f; --soft: #6d6962; --rule: #dcd7cc;
  --bar: #2b6c8f; --room: #dde8ee; --limit: #b4452c;
  --s0: #2b6c8f; --s1: #b4452c; --s2: #4b7d2c; --s3: #7a4f9a; --s4: #9a6a00; --s5: #3d3d3d;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #191a1c; --ink: #e6e3dd; --soft: #a09b92; --rule: #3a3b3e;
    --bar: #62a9cf; --room: #2b3a43; --limit: #ee8a6f;
    --s0: #62a9cf; --s1: #ee8a6f; --s2: #93c46f; --s3: #c39be2; --s4: #dfb04a; --s5: #d0d0d0;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  overflow-wrap: break-word;
}
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.2rem; line-height: 1.3; margin: 0 0 .5rem; }
h2 small { color: var(--soft); font-weight: normal; }
p { margin: .4rem 0; max-width: 44rem; }
.machine, .key, .note { color: var(--soft); font-size: .85rem; }
.best { display: flex; flex-wrap: wrap; gap: .5rem 2.5rem; margin: 1.5rem 0; padding: 0; }
.best div { min-width: 8rem; }
.best dd { margin: 0; font-size: 1.6rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.best dt, .best .how { color: var(--soft); font-size: .85rem; line-height: 1.5; }
.best dd small { font-size: .85rem; color: var(--soft); }
section { margin-top: 2rem; padding-top: 1.2rem; border-top: 1px solid var(--rule); }
.charts {
  display: grid; gap: 1.5rem 2.5rem; margin: 1.2rem 0;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr));
}
.table { overflow-x: auto; }
table { border-collapse: collapse; font-size: .8rem; font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: normal; vertical-align: bottom; }
th, td { padding: .2rem .7rem .2rem 0; text-align: right; white-space: nowrap; }
th.text, td.text { text-align: left; }
tbody tr { border-top: 1px solid var(--rule); }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { font-size: 12px; fill: var(--ink); }
svg .title { font-weight: 600; font-size: 13px; }
svg .value, svg .end { text-anchor: end; }
svg .middle { text-anchor: middle; }
svg .tick { fill: var(--soft); font-size: 11px; }
svg .bar { fill: var(--bar); }
svg .room { fill: var(--room); }
svg .limit { stroke: var(--limit); stroke-width: 2; }
svg .predicted { fill: var(--paper); stroke: var(--ink); stroke-width: 1.5; }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .curve { fill: none; stroke-width: 2; stroke-linejoin: round; }
svg .mark { stroke: var(--paper); stroke-width: 1; }
svg .series0 { stroke: var(--s0); } svg .mark.series0 { fill: var(--s0); }
svg .series1 { stroke: var(--s1); } svg .mark.series1 { fill: var(--s1); }
svg .series2 { stroke: var(--s2); } svg .mark.series2 { fill: var(--s2); }
svg .series3 { stroke: var(--s3); } svg .mark.series3 { fill: var(--s3); }
svg .series4 { stroke: var(--s4); } svg .mark.series4 { fill: var(--s4); }
svg .series5 { stroke: var(--s5); } svg .mark.series5 { fill: var(--s5); }
@media print {
  @page { margin: 14mm; }
  :root { --paper: #fff; }
  body { font-size: 10pt; -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  main { max-width: none; padding: 0; }
  .charts { grid-template-columns: 1fr 1fr; }
  .table { overflow: visible; }
  table { font-size: 6.5pt; }
  th, td { padding-right: .5em; }
  h2, p { break-after: avoid; }
  p, svg, tr { break-inside: avoid; }
  .note { break-before: avoid; break-after: auto; }
}
)css";

std::string tag(const std::string& name, const std::string& text) {
  return "<" + name + ">" + escaped(text) + "</" + name.substr(0, name.find(' ')) + ">\n";
}

// ---- the table of a part ----

struct Column {
  const char* name;
  bool is_text;
  std::function<std::string(const Row&)> cell;  // empty where it does not apply
};

std::string count(const std::optional<int>& value) {
  return value ? std::to_string(*value) : "";
}

std::string measured(const std::optional<double>& value) {
  return value ? figure(*value) : "";
}

const std::vector<Column>& columns() {
  static const std::vector<Column> all = {
      {"metric", true, [](const Row& row) { return row.metric; }},
      {"model", true, [](const Row& row) { return row.model; }},
      {"device", true, [](const Row& row) { return row.device; }},
      {"dtype", true, [](const Row& row) { return row.dtype; }},
      {"threads", false, [](const Row& row) { return std::to_string(row.threads); }},
      {"tokens", false, [](const Row& row) { return count(row.tokens); }},
      {"context", false, [](const Row& row) { return count(row.context); }},
      {"batch", false, [](const Row& row) { return count(row.batch); }},
      {"value", false, [](const Row& row) { return figure(row.value); }},
      {"unit", true, [](const Row& row) { return row.unit; }},
      {"limit", false, [](const Row& row) { return measured(row.limit); }},
      {"%", false,
       [](const Row& row) {
         const std::optional<double> reached = percent_of_limit(row);
         return reached ? one_decimal(*reached) : "";
       }},
      {"predicted", false, [](const Row& row) { return measured(row.predicted); }},
      {"min ms", false, [](const Row& row) { return measured(row.min); }},
      {"median ms", false, [](const Row& row) { return measured(row.median); }},
      {"run 0 ms", false, [](const Row& row) { return measured(row.first); }},
      {"runs", false,
       [](const Row& row) { return std::to_string(row.runs) + (row.scattered ? "*" : ""); }},
      {"output", true,
       [](const Row& row) {
         return row.output_hash ? hash_text(*row.output_hash).substr(0, 8) : "";
       }},
  };
  return all;
}

bool is_same_everywhere(const Column& column, const std::vector<Row>& rows) {
  return std::all_of(rows.begin(), rows.end(),
                     [&](const Row& row) { return column.cell(row) == column.cell(rows[0]); });
}

// A phone's screen is narrow: what is the same in all rows is said once, above the table.
std::string html_table(const std::vector<Row>& rows) {
  constexpr const char* kMaySayOnce[] = {"model", "device", "dtype", "context", "batch"};
  std::ostringstream head, body;
  std::string once;
  std::vector<const Column*> shown;
  for (const Column& column : columns()) {
    const bool same = is_same_everywhere(column, rows);
    const std::string cell = column.cell(rows[0]);
    if (same && cell.empty()) continue;
    const bool may =
        std::count(std::begin(kMaySayOnce), std::end(kMaySayOnce), std::string(column.name)) > 0;
    if (same && may && rows.size() > 1) {
      once += std::string(once.empty() ? "All: " : ", ") + column.name + " " + cell;
    } else {
      shown.push_back(&column);
    }
  }
  const auto kind = [](const Column& column) { return column.is_text ? " class=\"text\"" : ""; };
  for (const Column* column : shown) {
    head << "<th" << kind(*column) << ">" << escaped(column->name) << "</th>";
  }
  for (const Row& row : rows) {
    body << "<tr>";
    for (const Column* column : shown) {
      body << "<td" << kind(*column) << ">" << escaped(column->cell(row)) << "</td>";
    }
    body << "</tr>\n";
  }
  return (once.empty() ? "" : tag("p class=\"key\"", once + ".")) +
         "<div class=\"table\"><table>\n<thead><tr>" + head.str() + "</tr></thead>\n<tbody>\n" +
         body.str() + "</tbody>\n</table></div>\n";
}

// ---- the page ----

// The best row of a metric for a single sequence, as a large figure; empty where there is none.
std::string best_figure(const std::vector<Row>& rows, const std::string& metric) {
  const Row* best = nullptr;
  for (const Row& row : rows) {
    const bool counts =
        row.metric == metric && row.unit.ends_with("/s") && row.batch.value_or(1) == 1;
    if (counts && (!best || row.value > best->value)) best = &row;
  }
  if (!best) return "";
  std::string how = best->dtype + (best->dtype.empty() ? "" : ", ") +
                    std::to_string(best->threads) + (best->threads == 1 ? " thread" : " threads");
  if (const auto reached = percent_of_limit(*best))
    how += ", " + percent(*reached / 100) + " of the limit";
  return "<div>" + tag("dt", metric) + "<dd>" + escaped(figure(best->value)) +
         tag("small", " " + best->unit) + "</dd>" + tag("dd class=\"how\"", how) + "</div>\n";
}

std::string section_html(const Section& section, const std::vector<Row>& rows) {
  std::string html = "<section>\n<h2>" + escaped(section.part);
  if (!section.question.empty()) html += " <small>" + escaped(section.question) + "</small>";
  html += "</h2>\n";
  if (!section.conclusion.empty()) html += tag("p", section.conclusion);
  const std::vector<std::string> drawings = charts(rows);
  if (!drawings.empty()) {
    html += "<div class=\"charts\">\n";
    for (const std::string& drawing : drawings) html += drawing;
    html += "</div>\n";
  }
  html += html_table(rows);
  const auto scattered = [](const Row& row) { return row.scattered; };
  if (std::any_of(rows.begin(), rows.end(), scattered)) {
    html += tag("p class=\"note\"",
                "* half of these runs took over 10 % longer than the best: the machine was busy");
  }
  return html + "</section>\n";
}

std::vector<Row> rows_with(const std::vector<Row>& rows, const std::string& part) {
  std::vector<Row> found;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(found),
               [&](const Row& row) { return row.part == part; });
  return found;
}

// The sections that have rows, and one for every other part.
std::vector<Section> all_sections(const std::vector<Section>& given, const std::vector<Row>& rows) {
  std::vector<Section> all = given;
  std::erase_if(all, [&](const Section& section) { return rows_with(rows, section.part).empty(); });
  for (const Row& row : rows) {
    const bool known = std::any_of(
        all.begin(), all.end(), [&](const Section& section) { return section.part == row.part; });
    if (!known) all.push_back({row.part, "", ""});
  }
  return all;
}

}  // namespace

std::string report(const OrderedJson& meta, const std::vector<Section>& sections,
                   const std::vector<Row>& rows) {
  const std::string model = meta.value("model", std::string("a model"));
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta name=\"color-scheme\" content=\"light dark\"/>\n" +
      tag("title", "Speed of " + model) + "<style>" + kStyle +
      "</style>\n</head>\n<body>\n<main>\n" + tag("h1", "How fast is this machine?") +
      tag("p", model + ", measured " + meta.value("date", std::string("once")));
  std::istringstream lines(describe(meta));
  for (std::string line; std::getline(lines, line);) html += tag("p class=\"machine\"", line);

  html += "<dl class=\"best\">\n";
  for (const char* metric : {"decode", "prefill", "bandwidth", "fma_peak"}) {
    html += best_figure(rows, metric);
  }
  html +=
      "</dl>\n" +
      tag("p class=\"key\"",
          "A bar is what was measured, in the fastest run; the line at the end of the light bar "
          "is what this machine allows, a diamond what was predicted. Run 0 of every "
          "configuration stands apart, since it finds caches cold and threads asleep.");
  for (const Section& section : all_sections(sections, rows)) {
    html += section_html(section, rows_with(rows, section.part));
  }
  return html + "</main>\n</body>\n</html>\n";
}

void write_report(const std::string& path, const OrderedJson& meta,
                  const std::vector<Section>& sections, const std::vector<Row>& rows) {
  const std::string html = report(meta, sections, rows);
  write_file(path, [&](std::ostream& file) { file << html; });
}

}  // namespace qwen
