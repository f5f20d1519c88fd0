#include <regex>

#include "qwen/charts.h"
#include "qwen/machine_record.h"
#include "qwen/report.h"
#include "qwen/svg.h"
#include "tests/support.h"

using namespace qwen;

namespace {

Row row_of(const char* part, const char* metric, const char* unit, double value, int threads,
           std::optional<int> tokens = std::nullopt) {
  Row row;
  row.part = part;
  row.metric = metric;
  row.model = "a model";
  row.dtype = "bf16";
  row.threads = threads;
  row.tokens = tokens;
  row.unit = unit;
  row.value = value;
  row.runs = 3;
  return row;
}

const std::vector<Row> kRows = [] {
  std::vector<Row> rows = {
      row_of("threads", "decode", "tok/s", 9.25, 1, 32),
      row_of("threads", "decode", "tok/s", 17.5, 2, 32),
      row_of("threads", "prefill", "tok/s", 90, 1, 203),
      row_of("threads", "prefill", "tok/s", 171, 2, 203),
      row_of("unknown", "alone", "ms", 3.75, 2),
  };
  rows[1].limit = 20;
  rows[1].predicted = 19;
  rows[1].output_hash = 0xABCDEF;
  for (const int T : {64, 128, 256, 512}) {
    rows.push_back(row_of("chunk", "recurrent", "ms", 0.01 * T, 1, T));
    rows.push_back(row_of("chunk", "chunked", "ms", 0.02 * T, 1, T));
  }
  return rows;
}();
const std::vector<Section> kSections = {{"threads", "how many threads?", "Two & not <four>."},
                                        {"chunk", "or in chunks?", "No."},
                                        {"dtype", "which type?", "Nothing was measured."}};

OrderedJson meta() {
  OrderedJson json = machine_record();
  json["model"] = "a <model> & \"more\"";
  return json;
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// What is wrong with a text as XML, as far as tags, attributes and entities go; empty for nothing.
std::string malformed(std::string text) {
  text = std::regex_replace(text, std::regex("<!DOCTYPE html>\n"), "");
  const std::regex tag(R"(<(/?)([a-z][a-z0-9]*)((?: [a-zA-Z0-9:-]+="[^"<]*")*)(/?)>)");
  std::vector<std::string> open;
  std::smatch found;
  for (std::size_t at = text.find('<'); at != text.npos; at = text.find('<', at + 1)) {
    const std::string rest = text.substr(at, 2000);
    if (!std::regex_search(rest, found, tag, std::regex_constants::match_continuous)) {
      return "no tag: " + rest.substr(0, 60);
    }
    if (found[1] == "/") {
      if (open.empty() || open.back() != found[2]) return "not open: " + found[0].str();
      open.pop_back();
    } else if (found[4] != "/") {
      open.push_back(found[2]);
    }
  }
  if (!open.empty()) return "not closed: " + open.back();
  const std::regex bare("&(?!(amp|lt|gt|quot|#39);)");
  return std::regex_search(text, found, bare) ? "bare & at " + found.suffix().str().substr(0, 60)
                                              : "";
}

}  // namespace

TEST_CASE("report: the checker of this test sees what is malformed") {
  CHECK(malformed("<p a=\"b\">x &amp; y<br/></p>") == "");
  for (const char* bad : {"<p>", "<p></b>", "</p>", "<p>a & b</p>", "<p a=b></p>", "a < b"}) {
    CAPTURE(bad);
    CHECK(malformed(bad) != "");
  }
}

TEST_CASE("svg: text is escaped, and control characters are left out") {
  CHECK(escaped("a<b> & \"c\" 'd'\x01") == "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
  CHECK(escaped("Größe") == "Größe");
}

TEST_CASE("report: the page is well-formed, whatever names and sentences hold") {
  std::vector<Row> rows = kRows;
  rows[0].metric = rows[0].unit = rows[5].dtype = "</svg><script>&\"'";
  const std::string html = report(meta(), kSections, rows);
  CHECK(malformed(html) == "");
  CHECK(html.find("<script") == std::string::npos);
  CHECK(html.find("Two &amp; not &lt;four&gt;.") != std::string::npos);
  CHECK(html.find("<title>Speed of a &lt;model&gt; &amp; &quot;more&quot;</title>") !=
        std::string::npos);
}

TEST_CASE("report: nothing outside of the file is referred to") {
  const std::string html = report(meta(), kSections, kRows);
  const std::string outside =
      std::regex_replace(html, std::regex("xmlns=\"http://www.w3.org/2000/svg\""), "");
  for (const char* reference : {"http:", "https:", "//", "src=", "href=", "url(", "@import"}) {
    CAPTURE(reference);
    CHECK(outside.find(reference) == std::string::npos);
  }
}

TEST_CASE("report: every row is shown, in its part's table or under the part's name") {
  const std::string html = report(meta(), kSections, kRows);
  CHECK(count(html, "<tr>") == static_cast<int>(kRows.size()) + 3);  // and a heading a table
  CHECK(count(html, "<section>") == 3);
  for (const char* cell : {"<td>9.250</td>", "<td>17.50</td>", "<td>3.750</td>", "<td>20.00</td>",
                           "<td>87.5</td>", "<td class=\"text\">00000000</td>"}) {
    CAPTURE(cell);
    CHECK(html.find(cell) != std::string::npos);
  }
  // What is the same in all rows of a part stands above its table.
  CHECK(html.find("All: model a model, device cpu, dtype bf16.") != std::string::npos);
  CHECK(html.find("<h2>unknown</h2>") != std::string::npos);
  CHECK(html.find("Nothing was measured.") == std::string::npos);  // a part without rows
}

TEST_CASE("report: what scattered is marked, and the mark explained") {
  std::vector<Row> rows = kRows;
  CHECK(report(meta(), kSections, rows).find("the machine was busy") == std::string::npos);
  rows[1].scattered = true;
  const std::string html = report(meta(), kSections, rows);
  CHECK(html.find("the machine was busy") != std::string::npos);
  CHECK(html.find("<td>3*</td>") != std::string::npos);
  CHECK(html.find("17.50 tok/s *") != std::string::npos);
}

TEST_CASE("report: without a row there still is a page") {
  CHECK(malformed(report(meta(), kSections, {})) == "");
}

TEST_CASE("charts: what repeats becomes bars, what varies in length lines, a single row nothing") {
  const auto of = [](const char* part) {
    std::vector<Row> rows = kRows;
    std::erase_if(rows, [&](const Row& row) { return row.part != part; });
    return charts(rows);
  };
  const auto threads = of("threads");
  REQUIRE(threads.size() == 2);
  CHECK(count(threads[0], "class=\"bar\"") == 2);
  CHECK(threads[0].find(">decode, tok/s<") != std::string::npos);
  CHECK(threads[0].find(">1 thread<") != std::string::npos);
  CHECK(threads[0].find(">17.50 tok/s<") != std::string::npos);
  CHECK(count(threads[0], "class=\"limit\"") == 1);
  CHECK(count(threads[0], "class=\"predicted\"") == 1);
  const auto chunk = of("chunk");
  REQUIRE(chunk.size() == 1);
  CHECK(count(chunk[0], "class=\"mark ") == 8 + 2);  // and in the legend
  CHECK(chunk[0].find(">recurrent<") != std::string::npos);
  CHECK(chunk[0].find(">512<") != std::string::npos);
  CHECK(of("unknown").empty());
}

TEST_CASE("charts: many metrics are bars of one chart for each of what they are measured with") {
  std::vector<Row> rows;
  for (const int tokens : {1, 203}) {
    for (const char* metric : {"a", "b", "c", "d"}) {
      rows.push_back(row_of("ops", metric, "ms", 2, 2, tokens));
    }
  }
  const auto drawn = charts(rows);
  REQUIRE(drawn.size() == 2);
  CHECK(drawn[0].find(">1 token, ms<") != std::string::npos);
  CHECK(drawn[1].find(">203 tokens, ms<") != std::string::npos);
  CHECK(count(drawn[1], "class=\"bar\"") == 4);
  CHECK(drawn[1].find(">d<") != std::string::npos);
}

TEST_CASE("charts: a batch is one line, though its tokens grow with it") {
  std::vector<Row> rows;
  for (const int batch : {1, 2, 4}) {
    rows.push_back(row_of("batch", "decode", "tok/s", 10 * batch, 2, 32 * batch));
    rows.back().batch = batch;
  }
  const auto drawn = charts(rows);
  REQUIRE(drawn.size() == 1);
  CHECK(count(drawn[0], "class=\"curve ") == 1 + 1);  // and in the legend
  CHECK(drawn[0].find(">batch<") != std::string::npos);
}

TEST_CASE("svg: a bar is as long as its value, the longest as wide as the drawing") {
  const std::string chart = bar_chart("t", {{"a", 5, "5", {}, {}}, {"b", 10, "10", 20, {}}});
  CHECK(chart.find("width=\"100.0\" height=\"10.0\" class=\"bar\"") != std::string::npos);
  CHECK(chart.find("width=\"200.0\" height=\"10.0\" class=\"bar\"") != std::string::npos);
  CHECK(chart.find("width=\"400.0\" height=\"10.0\" class=\"room\"") != std::string::npos);
  CHECK(malformed(chart) == "");
  CHECK(malformed(bar_chart("t", {{"a", 0, "0", 0, 0}})) == "");
}

TEST_CASE("svg: points lie within the drawing, equal ratios at equal distances") {
  const std::string chart =
      line_chart("t", "x", {{"a", {{1, 1}, {10, 10}, {100, 100}}}, {"none", {}}});
  CHECK(malformed(chart) == "");
  CHECK(chart.find("d=\"M40.0 218.0L213.0 123.0L386.0 28.0\"") != std::string::npos);
  // From 0 on an axis is linear.
  CHECK(line_chart("t", "x", {{"a", {{0, 0}, {1, 30}, {2, 60}}}})
            .find("d=\"M40.0 218.0L213.0 123.0L386.0 28.0\"") != std::string::npos);
  // A single point, and equal ones, divide nothing by zero.
  for (const auto& points : {std::vector<std::pair<double, double>>{{3, 7}}, {{0, 0}, {0, 0}}}) {
    const std::string one = line_chart("t", "x", {{"a", points}});
    CHECK(malformed(one) == "");
    CHECK(one.find("nan") == std::string::npos);
    CHECK(one.find("inf") == std::string::npos);
  }
}

TEST_CASE("report: a file that cannot be written is named") {
  check_throws_with([] { write_report("no/such/folder/x.html", meta(), {}, {}); },
                    "cannot write no/such/folder/x.html");
}
