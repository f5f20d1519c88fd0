#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "qwen/parallel.h"

using namespace qwen;

TEST_CASE("parallel_for: every index is visited once, in pieces that start at multiples of grain") {
  for (int threads : {1, 2, 3, 5}) {
    REQUIRE(set_thread_count(threads) == threads);
    REQUIRE(thread_count() == threads);
    for (int n : {0, 1, 7, 64, 1000}) {
      for (int grain : {1, 3, 64, 2000}) {
        std::vector<std::atomic<int>> visits(n);
        parallel_for(n, grain, [&](int begin, int end) {
          CHECK(begin % grain == 0);
          CHECK(end - begin <= grain);
          for (int i = begin; i < end; ++i) ++visits[i];
        });
        for (int i = 0; i < n; ++i) CHECK(visits[i] == 1);
      }
    }
  }
}

TEST_CASE("parallel_for: a hundred thousand short jobs in a row lose none of their pieces") {
  set_thread_count(3);
  long long total = 0;
  for (int job = 0; job < 100000; ++job) {
    std::atomic<int> sum = 0;
    parallel_for(4, 1, [&](int begin, int) { sum += begin + 1; });
    total += sum;
  }
  CHECK(total == 10LL * 100000);
}

TEST_CASE("parallel_for: more than one thread takes part when there is work enough") {
  set_thread_count(2);
  std::mutex mutex;
  std::set<std::thread::id> seen;
  parallel_for(50, 1, [&](int, int) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::lock_guard lock(mutex);
    seen.insert(std::this_thread::get_id());
  });
  CHECK(seen.size() == 2);
}

TEST_CASE("parallel_for: work of one piece stays on the caller") {
  set_thread_count(2);
  parallel_for(8, 8, [caller = std::this_thread::get_id()](int, int) {
    CHECK(std::this_thread::get_id() == caller);
  });
}

TEST_CASE("parallel_for: an exception in a piece reaches the caller, and the team goes on") {
  set_thread_count(3);
  CHECK_THROWS_WITH_AS(parallel_for(9, 1,
                                    [](int begin, int) {
                                      if (begin == 5) throw std::runtime_error("piece five");
                                    }),
                       "piece five", std::runtime_error);
  std::atomic<int> pieces = 0;
  parallel_for(9, 1, [&](int, int) { ++pieces; });
  CHECK(pieces == 9);
}

TEST_CASE("parallel_for: a call from inside a piece, and two callers at once, both complete") {
  for (const int threads : {1, 2}) {
    set_thread_count(threads);
    std::atomic<int> inner = 0;
    parallel_for(4, 1, [&](int, int) {
      inner += thread_count();  // does not wait for this very job either
      parallel_for(10, 1, [&](int, int) { ++inner; });
    });
    CHECK(inner == 4 * (threads + 10));
  }
  std::atomic<int> both = 0;
  const auto call = [&] {
    for (int i = 0; i < 200; ++i) parallel_for(10, 1, [&](int, int) { ++both; });
  };
  std::thread other(call);
  call();
  other.join();
  CHECK(both == 2 * 200 * 10);
}

TEST_CASE("set_thread_count: less than one thread is refused, and so is an empty grain") {
  CHECK_THROWS_WITH_AS(set_thread_count(0), doctest::Contains("at least 1"), std::invalid_argument);
  CHECK_THROWS_WITH_AS(parallel_for(4, 0, [](int, int) {}), doctest::Contains("grain"),
                       std::invalid_argument);
}

TEST_CASE(
    "the team sleeps when there is nothing to do: under 2 % CPU a second after the last job") {
  set_thread_count(4);
  parallel_for(8, 1, [](int, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const std::clock_t before = std::clock();  // CPU time of all threads
  std::this_thread::sleep_for(std::chrono::seconds(1));
  CHECK(double(std::clock() - before) / CLOCKS_PER_SEC < 0.02);
}
