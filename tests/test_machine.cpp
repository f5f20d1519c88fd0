#include <doctest/doctest.h>

#include <string>

#include "qwen/machine.h"
#include "tests/support.h"

using namespace qwen;

TEST_CASE("default_threads: at least one, at most the CPUs allowed, and says why") {
  const DefaultThreads threads = default_threads();
  CHECK(threads.count >= 1);
  CHECK(!threads.reason.empty());
}

#if defined(__linux__)
TEST_CASE("default_threads: two threads of one core count once") {
  const TempDir root;
  for (int cpu = 0; cpu < 8192; ++cpu) {
    if (cpu < 64) {
      root.write(
          "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
          "0-63");
    }
  }
  CHECK(default_threads(root.path()).count == 1);
}

TEST_CASE(
    "default_threads: the quota of a group above is found, and rounded down to at least one") {
  const TempDir root;
  root.write("proc/self/cgroup", "0::/outer/inner");
  root.write("sys/fs/cgroup/outer/inner/cpu.max", "max 100000");
  root.write("sys/fs/cgroup/outer/cpu.max", "65000 100000");
  CHECK(default_threads(root.path()).count == 1);
  CHECK(default_threads(root.path()).reason == "a quota of 0.65 CPUs");
  root.write("sys/fs/cgroup/outer/cpu.max", "176500 100000");
  CHECK(default_threads(root.path()).count == 1);
  root.write("sys/fs/cgroup/outer/cpu.max", "max 100000");
  CHECK(default_threads(root.path()).count == default_threads(TempDir().path()).count);
}
#endif
