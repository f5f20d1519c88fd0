#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "qwen/interrupt.h"
#include "qwen/process.h"
#include "qwen/processes.h"
#include "qwen/progress.h"
#include "tests/support.h"

using namespace qwen;

namespace {

const std::vector<Configuration> kFour =
    all_configurations({"a model"}, {"f32", "bf16"}, {"cpu"}, {1, 3});

// What a process would report: a run of 1 s, then `runs` of 0.5 s, 0.25 s for three threads.
std::vector<Row> made_up(const Configuration& configuration, int runs) {
  Row row;
  row.part = "task";
  row.metric = "decode";
  row.model = configuration.model;
  row.dtype = configuration.dtype;
  row.threads = configuration.threads;
  row.unit = "tok/s";
  std::vector<Run> all = {{{1.0}, 7}};
  for (int i = 0; i < runs; ++i) all.push_back({{configuration.threads == 3 ? 0.25 : 0.5}, 7});
  const Summary times = summarise(all);
  set_times(row, times, 8);
  row.limit = 20 * configuration.threads;
  row.predicted = 18;
  row.output_hash = times.hash;
  return {row};
}

// Whether it becomes true within ten seconds.
bool comes_true(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace

TEST_CASE("processes: configurations are every model in every dtype with every team") {
  const auto all = all_configurations({"a", "b"}, {"f32", "bf16", "f16"}, {"cpu"}, {1, 2});
  CHECK(all.size() == 12);
  CHECK(all[0] == Configuration{"a", "f32", "cpu", 1});
  CHECK(all[11] == Configuration{"b", "f16", "cpu", 2});
  CHECK(all_configurations({"a", "a"}, {"f32"}, {"cpu", "cpu"}, {2, 1, 2}).size() == 2);
}

TEST_CASE("processes: a model whose name is no UTF-8 is known again from a file") {
  const Configuration raw{"a\xff", "f32"}, read{"a\uFFFD", "f32"};
  CHECK(raw == read);
  CHECK(!(raw == Configuration{"a", "f32"}));
}

TEST_CASE("processes: their runs add up to those asked for") {
  CHECK(runs_of_process(10, 0) == 4);
  CHECK(runs_of_process(10, 1) == 3);
  CHECK(runs_of_process(10, 2) == 3);
  CHECK(runs_of_process(1, 1) == 0);
}

TEST_CASE("processes: every configuration runs three times, between the others") {
  std::vector<std::pair<std::string, int>> order;
  std::vector<Outcome> outcomes;
  int saved = 0;
  const auto measurement = [&](const Configuration& c, int runs) {
    order.push_back({c.dtype, c.threads});
    return made_up(c, runs);
  };
  measure_all("test", kFour, 10, measurement, outcomes, [&] { ++saved; });
  REQUIRE(order.size() == 12);
  CHECK(saved == 12);
  std::set<std::vector<std::pair<std::string, int>>> orders;
  for (auto from = order.begin(); from != order.end(); from += 4) {
    CHECK(std::set(from, from + 4).size() == 4);
    orders.insert({from, from + 4});
  }
  CHECK(orders.size() > 1);
}

TEST_CASE("processes: what is done is not done again") {
  std::vector<Outcome> outcomes;
  int started = 0;
  const auto gives_up = [&](const Configuration& c, int runs) {
    if (++started == 6) throw Interrupted{};
    return made_up(c, runs);
  };
  measure_all("test", kFour, 10, gives_up, outcomes);
  CHECK(outcomes.size() == 5);
  CHECK(merged_rows("p", kFour, outcomes).size() == 4);  // all have run once, one of them twice
  started = 10;
  measure_all("test", kFour, 10, gives_up, outcomes);
  CHECK(started == 17);
  REQUIRE(outcomes.size() == 12);
  const std::vector<Row> rows = merged_rows("p", kFour, outcomes);
  REQUIRE(rows.size() == 4);
  for (const Row& row : rows) CHECK(row.runs == 10);
}

TEST_CASE("processes: a row is made of the runs of all its processes, their run 0 apart") {
  std::vector<Outcome> outcomes;
  for (int process = 0; process < 3; ++process) {
    for (const Configuration& c : {kFour[0], kFour[1]}) {
      outcomes.push_back({c, process, made_up(c, runs_of_process(10, process))});
    }
  }
  const std::vector<Row> rows = merged_rows("p", {}, outcomes);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].part == "p");
  CHECK(rows[0].threads == 1);
  CHECK(rows[0].runs == 10);
  CHECK(rows[0].value == 16);
  CHECK(*rows[0].min == 500);
  CHECK(*rows[0].first == 1000);
  REQUIRE(rows[0].times.size() == 3);
  CHECK(rows[0].times[0].size() == 5);
  CHECK(rows[0].times[2].size() == 4);
  CHECK(rows[1].value == 32);
  CHECK(*rows[0].predicted == 18);
  CHECK(*rows[0].limit == 60);  // three threads have shown that more is possible
  CHECK(*rows[1].limit == 60);
  CHECK(*rows[0].output_hash == 7);
}

TEST_CASE("processes: rows stand in the order asked for, whatever the order of measuring was") {
  std::vector<Outcome> outcomes;
  for (const Configuration& c : {kFour[2], kFour[3], kFour[0]}) {
    outcomes.push_back({c, 0, made_up(c, 3)});
  }
  const std::vector<Row> rows = merged_rows("p", {kFour[0], kFour[1], kFour[2]}, outcomes);
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].dtype == "f32");
  CHECK((rows[1].dtype == "bf16" && rows[1].threads == 1));
  CHECK((rows[2].dtype == "bf16" && rows[2].threads == 3));  // not asked for, but there
}

TEST_CASE("processes: different outputs of one configuration leave no hash") {
  std::vector<Outcome> outcomes;
  for (int process = 0; process < 2; ++process) {
    outcomes.push_back({kFour[0], process, made_up(kFour[0], 3)});
  }
  outcomes[1].rows[0].output_hash = 8;
  CHECK(!merged_rows("p", kFour, outcomes)[0].output_hash);
}

TEST_CASE("process: one that works is waited for, one that fails tells why in a line") {
  const TempDir folder;
  const std::string path = folder.path() + "/made";
  CHECK(run_process({"/bin/sh", "-c", "sleep 0.2; echo out; echo err >&2; touch " + path}) ==
        "out\n");
  CHECK(std::ifstream(path).good());
  check_throws_with(
      [] {
        run_process({"/bin/sh", "-c", "echo one >&2; echo two >&2; exit 3"});
      },
      "/bin/sh: two");
  check_throws_with([] { run_process({"/bin/sh", "-c", "exit 3"}); }, "/bin/sh: exit status 3");
  check_throws_with([] { run_process({"/bin/sh", "-c", "kill -9 $$"}); }, "ended by signal 9");
  check_throws_with([] { run_process({"no/such/program"}); },
                    "cannot start no/such/program: No such file or directory");
}

TEST_CASE("process: a program that is killed closes the stdin of the one it has started") {
  const TempDir folder;
  const std::string begun = folder.path() + "/begun", ended = folder.path() + "/ended";
  const pid_t killed = fork();
  if (killed == 0) {
    run_process({"/bin/sh", "-c", "touch " + begun + "; cat; touch " + ended});
    _exit(0);
  }
  const auto is_there = [](const std::string& path) { return std::filesystem::exists(path); };
  CHECK(comes_true([&] { return is_there(begun); }));
  CHECK(!is_there(ended));
  kill(killed, SIGKILL);
  waitpid(killed, nullptr, 0);
  CHECK(comes_true([&] { return is_there(ended); }));
}

TEST_CASE("process: a program whose stdin is closed ends") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[1]);
    dup2(ends[0], STDIN_FILENO);
    end_with_parent();
    std::this_thread::sleep_for(std::chrono::seconds(60));
    _exit(0);
  }
  close(ends[0]);
  int status = 0;
  CHECK(waitpid(child, &status, WNOHANG) == 0);
  close(ends[1]);
  CHECK(comes_true([&] { return waitpid(child, &status, WNOHANG) == child; }));
  CHECK(status != 0);
}

TEST_CASE("process: temporary files lie where TMPDIR says, and none stays") {
  const TempDir folder;
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before ? before : "";
  setenv("TMPDIR", folder.path().c_str(), 1);
  CHECK(run_process({"/bin/sh", "-c", "echo out"}) == "out\n");
  CHECK(std::filesystem::is_empty(folder.path()));
  setenv("TMPDIR", (folder.path() + "/none").c_str(), 1);
  check_throws_with(
      [] {
        run_process({"/bin/sh", "-c", "echo out"});
      },
      "cannot write to " + folder.path() +
          "/none, the folder for temporary files: No such file or directory; "
          "$TMPDIR names another");
  before ? setenv("TMPDIR", kept.c_str(), 1) : unsetenv("TMPDIR");
}

TEST_CASE("progress: time is told in the unit that fits") {
  CHECK(duration(0.4) == "0 s");
  CHECK(duration(59.6) == "60 s");
  CHECK(duration(150) == "3 min");
  CHECK(duration(7500) == "2 h 5 min");
}

// The last one: the flag stays.
TEST_CASE("process: Ctrl-C ends the program that is waited for") {
  watch_for_interrupt();
  std::raise(SIGINT);
  CHECK_THROWS_AS(run_process({"/bin/sh", "-c", "exec sleep 60"}), Interrupted);
  int started = 0;
  std::vector<Outcome> outcomes;
  const auto counted = [&](const Configuration& c, int runs) {
    ++started;
    return made_up(c, runs);
  };
  measure_all("test", kFour, 10, counted, outcomes);
  CHECK(started == 0);
}
