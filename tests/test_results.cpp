#include <cmath>
#include <fstream>
#include <sstream>

#include "qwen/interrupt.h"
#include "qwen/results.h"
#include "tests/support.h"

using namespace qwen;

namespace {

std::vector<Run> runs_of(const std::vector<double>& seconds) {
  std::vector<Run> runs;
  for (const double s : seconds) runs.push_back({{s, 2 * s}, 7});
  return runs;
}

Row decode_row() {
  Row row;
  row.part = "threads";
  row.metric = "decode";
  row.model = "a model";
  row.dtype = "bf16";
  row.threads = 2;
  row.tokens = 32;
  row.unit = "tok/s";
  row.limit = 20;
  set_times(row, summarise(runs_of({9, 2, 3, 2.1})), 32);
  row.output_hash = 0xABCDEF;
  return row;
}

}  // namespace

TEST_CASE("measure: the first run stands apart, minimum and median are of the others") {
  const Summary s = summarise(runs_of({9, 2, 4, 3}));
  CHECK(s.first == 9);
  CHECK(s.min == 2);
  CHECK(s.median == 3);
  CHECK(s.runs == 3);
  CHECK(summarise(runs_of({9, 2, 4, 3, 5})).median == 3.5);
  CHECK(summarise(runs_of({9, 2, 4, 3}), 1).min == 4);  // of the second phase
}

TEST_CASE("measure: a single run is all there is, none is nothing") {
  const Summary one = summarise(runs_of({9}));
  CHECK(one.min == 9);
  CHECK(one.median == 9);
  CHECK(one.runs == 1);
  CHECK(summarise({}).runs == 0);
}

TEST_CASE("measure: every process has a run 0 of its own") {
  const Summary s = summarise_processes({runs_of({9, 2, 4}), runs_of({7, 3}), runs_of({5})});
  CHECK(s.first == 7);
  CHECK(s.min == 2);
  CHECK(s.median == 3);
  CHECK(s.runs == 3);
  CHECK(s.seconds == std::vector<std::vector<double>>{{9, 2, 4}, {7, 3}, {5}});
  CHECK(summarise_processes({runs_of({9}), runs_of({7})}).min == 7);
  CHECK(summarise_processes({}).runs == 0);
}

TEST_CASE("measure: runs scatter when their median is more than a tenth above the minimum") {
  CHECK(!summarise(runs_of({50, 10, 10.9, 30})).scattered);  // one disturbed run is no scatter
  CHECK(summarise(runs_of({10, 10, 11.1, 12})).scattered);
}

TEST_CASE("measure: different outputs of one contender are noticed") {
  std::vector<Run> runs = runs_of({1, 2, 3});
  CHECK(summarise(runs).same_hash);
  runs[2].hash = 8;
  CHECK(!summarise(runs).same_hash);
}

TEST_CASE("measure: every round runs every contender once, in an order of its own") {
  std::string order;
  std::vector<Contender> contenders;
  for (const char name : {'a', 'b', 'c', 'd'}) {
    contenders.push_back({std::string(1, name), [&order, name] {
                            order += name;
                            return Run{{1}};
                          }});
  }
  const auto runs = measure("test", contenders, {7});
  REQUIRE(runs.size() == 4);
  for (const auto& own : runs) CHECK(own.size() == 8);
  CHECK(order.size() == 32);
  bool reordered = false;
  for (std::size_t round = 0; round < 8; ++round) {
    std::string once = order.substr(4 * round, 4);
    reordered = reordered || once != order.substr(0, 4);
    std::sort(once.begin(), once.end());
    CHECK(once == "abcd");
  }
  CHECK(reordered);
}

TEST_CASE("measure: a run that gives up ends it, and what is finished stays") {
  int started = 0;
  const Contender contender{"a", [&] {
                              if (++started == 3) throw Interrupted{};
                              return Run{{1}};
                            }};
  CHECK(measure("test", {contender}, {7})[0].size() == 2);
}

TEST_CASE("results: a speed is the work of a run by its least time") {
  const Row row = decode_row();
  CHECK(row.value == 16);
  CHECK(*row.min == 2000);
  CHECK(*row.median == 2100);
  CHECK(*row.first == 9000);
  CHECK(row.runs == 3);
  CHECK(*percent_of_limit(row) == 80);
}

TEST_CASE("results: of a time, the limit is the least") {
  Row row;
  row.unit = "ms";
  set_times(row, summarise(runs_of({1, 0.02})));
  CHECK(row.value == 20);
  CHECK(!percent_of_limit(row));
  row.limit = 5;
  CHECK(*percent_of_limit(row) == 25);
}

TEST_CASE("results: figures have four digits, whatever their size") {
  CHECK(figure(1234567) == "1234567");
  CHECK(figure(188.26) == "188.3");
  CHECK(figure(9.5) == "9.500");
  CHECK(figure(0.0123) == "0.012");
  CHECK(figure(0.000123) == "0.00012");
  CHECK(figure(0) == "0");
  CHECK(percent(0.0904) == "9 %");
}

TEST_CASE("results: sentences are broken at spaces, a word longer than a line is not") {
  CHECK(wrapped("one two three", 7) == "one two\nthree");
  CHECK(wrapped("one two three", 8) == "one two\nthree");
  CHECK(wrapped("one two three", 13) == "one two three");
  CHECK(wrapped("a tremendous b", 4) == "a\ntremendous\nb");
  CHECK(wrapped("").empty());
}

TEST_CASE("results: the table has a line for each row, and marks what scattered") {
  Row row = decode_row();
  const std::string calm = table({row});
  CHECK(calm.find("decode") != std::string::npos);
  CHECK(calm.find("16.00 tok/s") != std::string::npos);
  CHECK(calm.find("80.0") != std::string::npos);
  CHECK(calm.find("00000000") != std::string::npos);  // of the hash, the first eight digits
  CHECK(calm.find('*') == std::string::npos);
  row.scattered = true;
  const std::string marked = table({row, row});
  CHECK(marked.find("3*") != std::string::npos);
  CHECK(std::count(marked.begin(), marked.end(), '\n') == 3);
}

TEST_CASE("results: context and batch have columns where they tell rows of a metric apart") {
  Row one = decode_row(), two = decode_row();
  one.context = 219;
  two.metric = "prefill";
  two.context = 0;
  CHECK(table({one, two}).find("context") == std::string::npos);
  two.metric = "decode";
  CHECK(table({one, two}).find("context") != std::string::npos);
  CHECK(table({one, two}).find("    219 ") != std::string::npos);
  CHECK(table({one, two}).find("batch") == std::string::npos);
  two.batch = 64;
  CHECK(table({one, two}).find("      - ") != std::string::npos);
}

TEST_CASE("results: a long metric moves the other columns, for all rows") {
  Row row = decode_row();
  row.metric = "a metric of more than 22 letters";
  const std::string text = table({decode_row(), row});
  CHECK(text.find("bf16", text.find("a metric")) - text.find("a metric") ==
        text.find("bf16") - text.find("decode"));
}

TEST_CASE("results: JSON holds every field under its name, null where it does not apply") {
  const TempDir folder;
  const std::string path = folder.path() + "/results.json";
  write_results(path, {{"cpu", "a CPU"}}, {decode_row(), Row{}});
  const Json json = read_json(path);
  CHECK(json["meta"]["cpu"] == "a CPU");
  REQUIRE(json["rows"].size() == 2);
  const Json& full = json["rows"][0];
  const Json& empty = json["rows"][1];
  for (const char* field : {"part", "model", "device", "dtype", "threads", "tokens", "context",
                            "batch", "metric", "value", "unit", "min", "median", "runs", "limit",
                            "percent_of_limit", "predicted", "output_hash"}) {
    CAPTURE(field);
    CHECK(full.contains(field));
    CHECK(empty.contains(field));
  }
  CHECK(full["value"] == 16);
  CHECK(full["unit"] == "tok/s");
  CHECK(full["percent_of_limit"] == 80);
  CHECK(full["output_hash"] == "0000000000abcdef");
  for (const char* field : {"model", "dtype", "tokens", "context", "batch", "min", "median",
                            "limit", "percent_of_limit", "predicted", "output_hash"}) {
    CAPTURE(field);
    CHECK(empty[field].is_null());
  }
  CHECK(full["batch"].is_null());
}

TEST_CASE("results: rows come back from JSON as they were") {
  const TempDir folder;
  const std::string path = folder.path() + "/results.json";
  write_results(path, {}, {decode_row(), Row{}});
  const std::vector<Row> rows = rows_from_json(read_json(path)["rows"], path);
  REQUIRE(rows.size() == 2);
  CHECK(to_json(rows[0]) == to_json(decode_row()));
  CHECK(to_json(rows[1]) == to_json(Row{}));
  CHECK(rows[0].times == std::vector<std::vector<double>>{{9000, 2000, 3000, 2100}});
  CHECK(rows[0].output_hash == 0xABCDEF);
}

TEST_CASE("results: names that are no UTF-8 are written as well as they can be") {
  const TempDir folder;
  const std::string path = folder.path() + "/results.json";
  Row row = decode_row();
  row.model = "a\xff";
  write_results(path, {{"model", row.model}}, {row});
  CHECK(read_json(path)["rows"][0]["model"] == "a\uFFFD");
  CHECK(read_json(path)["meta"]["model"] == "a\uFFFD");
}

TEST_CASE("results: a figure without end is shown as what it is") {
  CHECK(figure(INFINITY) == "inf");
  CHECK(figure(-INFINITY) == "-inf");
}

TEST_CASE("results: a row that is none is named with its place") {
  check_throws_with([] { rows_from_json(Json::parse("[3]"), "x.json"); }, "x.json[0]: found 3");
  check_throws_with([] { rows_from_json(Json::parse("[{}]"), "x.json"); }, "x.json[0]: part");
  Json row = Json::parse(to_json(Row{}).dump());
  row["times"] = {1, 2};
  check_throws_with([&] { rows_from_json(Json::array({row}), "x.json"); },
                    "x.json[0]: times is [1,2], expected a list of lists of numbers above 0");
  row["times"] = Json::array();
  row["threads"] = -1;
  check_throws_with([&] { rows_from_json(Json::array({row}), "x.json"); }, "x.json[0]: threads");
}

TEST_CASE("results: a file that cannot be written is named") {
  check_throws_with([] { write_results("no/such/folder/x.json", {}, {}); },
                    "cannot write no/such/folder/x.json: No such file or directory");
}
