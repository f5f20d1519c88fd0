#include "qwen/interrupt.h"
#include "qwen/matrix.h"
#include "tests/support.h"

using namespace qwen;

namespace {

const std::vector<Configuration> kFour =
    all_configurations({"a model"}, {"f32", "bf16"}, {"cpu"}, {1, 2});

OrderedJson meta() {
  OrderedJson json;
  for (const char* key : {"cpu", "system", "compiler", "kernel", "blas_kernel", "git_revision"}) {
    json[key] = std::string("some ") + key;
  }
  json["logical_cpus"] = 2;
  json["prompt"] = 203;
  json["steps"] = 128;
  json["runs"] = 10;
  return json;
}

Row phase(const Configuration& c, const char* metric, double seconds, int runs) {
  Row row;
  row.part = "task";
  row.metric = metric;
  row.model = c.model;
  row.dtype = c.dtype;
  row.threads = c.threads;
  row.unit = "tok/s";
  std::vector<Run> all = {{{7 * seconds}, 5}};
  for (int i = 0; i < runs; ++i) all.push_back({{seconds}, 5});
  const Summary times = summarise(all);
  set_times(row, times, 8);
  row.limit = row.predicted = 40;
  row.output_hash = times.hash;
  return row;
}

std::vector<Row> made_up(const Configuration& c, int runs) {
  const double seconds = (c.dtype == "f32" ? 1.0 : 0.5) / c.threads;
  return {phase(c, "prefill", seconds / 4, runs), phase(c, "decode", seconds, runs)};
}

// Measures into a file until so many processes have run, as a Ctrl-C would end it.
void measure_into(const std::string& path, int processes) {
  std::vector<Outcome> outcomes = read_matrix(path, meta());
  const auto measurement = [&](const Configuration& c, int runs) {
    if (processes-- == 0) throw Interrupted{};
    return made_up(c, runs);
  };
  measure_all("test", kFour, 10, measurement, outcomes,
              [&] { write_matrix(path, meta(), kFour, outcomes); });
}

}  // namespace

TEST_CASE("matrix: interrupted and continued, it holds every row once, as if in one go") {
  const TempDir folder;
  const std::string path = folder.path() + "/a.json", at_once = folder.path() + "/b.json";
  measure_into(path, 5);
  CHECK(read_json(path)["processes"].size() == 5);
  measure_into(path, 3);
  CHECK(read_json(path)["processes"].size() == 8);
  measure_into(path, 100);
  measure_into(at_once, 100);
  CHECK(read_json(path) == read_json(at_once));
  const std::vector<Row> rows = rows_from_json(read_json(path)["rows"], path);
  REQUIRE(rows.size() == 8);
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(rows[i].dtype == kFour[i / 2].dtype);
    CHECK(rows[i].threads == kFour[i / 2].threads);
    CHECK(rows[i].metric == (i % 2 == 0 ? "prefill" : "decode"));
    CHECK(rows[i].runs == 10);
  }
  measure_into(path, 0);  // nothing is left to do
  CHECK(read_json(path) == read_json(at_once));
}

TEST_CASE("matrix: without a file there is nothing yet") {
  CHECK(read_matrix("no/such/file.json", meta()).empty());
}

TEST_CASE("matrix: what cannot be continued is refused in one line") {
  const TempDir folder;
  const std::string path = folder.path() + "/a.json";
  measure_into(path, 2);
  const auto refused = [&](const char* key, const OrderedJson& value, const char* message) {
    OrderedJson other = meta();
    other[key] = value;
    check_throws_with([&] { read_matrix(path, other); }, message);
  };
  refused("git_revision", "another",
          "its figures were measured with git_revision \"some git_revision\", this is \"another\"; "
          "give --json another file, or delete this one");
  refused("cpu", "another", "with cpu \"some cpu\", this is \"another\"");
  refused("steps", 32, "with steps 128, this is 32");
  write_results(path, meta(), {});
  check_throws_with([&] { read_matrix(path, meta()); }, "no matrix that could be continued");
}

TEST_CASE("matrix: a damaged file is refused in one line, and stays as it is") {
  const TempDir folder;
  const std::string whole = folder.path() + "/a.json";
  measure_into(whole, 2);
  const std::string text = read_json(whole).dump();
  const std::string half = folder.write("half.json", text.substr(0, text.size() / 2));
  check_throws_with([&] { read_matrix(half, meta()); }, "half.json");
  CHECK(std::filesystem::file_size(half) == text.size() / 2);
  for (const char* pointer : {"/processes/1/threads", "/processes/0/rows/0/times",
                              "/processes/0/rows/1/unit", "/processes/0/process"}) {
    Json json = Json::parse(text);
    json[Json::json_pointer(pointer)] = "x" + std::string(3, 'y');
    if (std::string(pointer).ends_with("unit")) json[Json::json_pointer(pointer)] = 5;
    const std::string path = folder.write("changed.json", json.dump());
    CAPTURE(pointer);
    check_throws_with([&] { read_matrix(path, meta()); }, "changed.json");
  }
}

TEST_CASE("matrix: what cannot have been measured is refused with its place") {
  const TempDir folder;
  const std::string whole = folder.path() + "/a.json";
  measure_into(whole, 3);
  const Json sound = read_json(whole);
  const auto refused = [&](const std::string& pointer, const Json& value, const char* message) {
    Json json = sound;
    json[Json::json_pointer("/processes" + pointer)] = value;
    const std::string path = folder.write("changed.json", json.dump());
    CAPTURE(pointer);
    check_throws_with([&] { read_matrix(path, meta()); }, path + ": processes" + message);
  };
  refused("/1/rows/0/min", nullptr, "[1]: rows[0]: min is null, expected a number above 0");
  refused("/1/rows/0/min", 0, "[1]: rows[0]: min is 0, expected a number above 0");
  refused("/1/rows/0/median", -1, "[1]: rows[0]: median is -1, expected a number from 0");
  refused("/2/rows/1/value", 0, "[2]: rows[1]: value is 0, expected a number above 0");
  refused("/0/rows/1/times", Json::array(), "[0]: rows[1]: times is [], expected a list with one");
  refused("/0/rows/1/times", Json::array({Json::array()}), "[0]: rows[1]: times is [[]], expected");
  refused("/0/rows/1/times/0/1", 0, "[0]: rows[1]: times is [[");
  refused("/0/rows/1/metric", "prefill", "[0]: rows[1]: metric is \"prefill\", expected one that");
  refused("/0/rows/0/output_hash", "5", "[0]: rows[0]: output_hash is \"5\", expected 16 hexa");
  refused("/2", sound["processes"][0], "[2]: process is 0, expected another one than before");
  check_throws_with([&] { read_matrix(folder.write("b.json", sound.dump() + "x"), meta()); },
                    "b.json: not valid JSON");
}

TEST_CASE("matrix: a model whose name is no UTF-8 loses nothing, and is not measured again") {
  const TempDir folder;
  const std::string path = folder.path() + "/a.json";
  const std::vector<Configuration> odd = all_configurations({"a\xff"}, {"f32"}, {"cpu"}, {1});
  int started = 0;
  for (int time = 0; time < 2; ++time) {
    std::vector<Outcome> outcomes = read_matrix(path, meta());
    const auto measurement = [&](const Configuration& c, int runs) {
      ++started;
      return made_up(c, runs);
    };
    measure_all("test", odd, 3, measurement, outcomes,
                [&] { write_matrix(path, meta(), odd, outcomes); });
    CHECK(outcomes.size() == kProcesses);
    CHECK(matrix_rows(odd, outcomes).size() == 2);
  }
  CHECK(started == kProcesses);
  CHECK(read_json(path)["rows"][0]["model"] == "a\uFFFD");
}

TEST_CASE("matrix: the table has a line for each phase, run 0 apart") {
  std::vector<Outcome> outcomes;
  for (const Configuration& c : kFour) outcomes.push_back({c, 0, made_up(c, 4)});
  outcomes[0].rows.push_back(outcomes[0].rows[0]);
  outcomes[0].rows.back().metric = "bandwidth";  // not of the model
  const std::string text = matrix_table(matrix_rows(kFour, outcomes));
  CHECK(std::count(text.begin(), text.end(), '\n') == 9);
  CHECK(text.find("a model f32   cpu          1 decode       8.000   20.0   "
                  "   1000      1000      7000     4  00000000") != std::string::npos);
}

TEST_CASE("matrix: its conclusion names the fastest, and different outputs aloud") {
  std::vector<Outcome> outcomes;
  for (const Configuration& c : kFour) outcomes.push_back({c, 0, made_up(c, 4)});
  std::vector<Row> rows = matrix_rows(kFour, outcomes);
  const std::string text = matrix_conclusion(rows);
  CHECK(text.find("decode up to 32.00 tok/s in bf16 with 2 threads") != std::string::npos);
  CHECK(text.find("prefill up to 128.0 tok/s in bf16 with 2 threads") != std::string::npos);
  CHECK(text.find("write the same tokens") != std::string::npos);
  rows[1].output_hash = 6;  // f32 with another number of threads writes 5
  CHECK(matrix_conclusion(rows).find("DIFFERENT") != std::string::npos);
  CHECK(matrix_conclusion({}).empty());
}
