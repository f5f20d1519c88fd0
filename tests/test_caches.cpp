#include <doctest/doctest.h>

#include <string>

#include "qwen/caches.h"
#include "tests/support.h"

using namespace qwen;

TEST_CASE("caches: of a size that a cache can have, or none at all") {
  for (const Cache& cache : caches()) {
    CHECK(cache.name.starts_with("L"));
    CHECK(cache.bytes >= 4096);
  }
  CHECK(second_level_cache(caches()) >= 64 * 1024);
}

TEST_CASE("caches: the second level, the largest, and what is taken where nothing is known") {
  const std::vector<Cache> known{{"L1d", 49152}, {"L2", 2097152}, {"L3", 33554432}};
  CHECK(second_level_cache(known) == 2097152);
  CHECK(largest_cache(known) == 33554432);
  CHECK(second_level_cache({}) == 1048576);
  CHECK(largest_cache({}) == 0);
}

#if defined(__linux__)
TEST_CASE("caches: as Linux lists them, without those of instructions") {
  const TempDir root;
  const auto write = [&](int index, const char* level, const char* type, const char* size) {
    const std::string at = "sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    root.write(at + "level", level);
    root.write(at + "type", type);
    root.write(at + "size", size);
  };
  write(0, "1", "Data", "48K");
  write(1, "1", "Instruction", "32K");
  write(2, "2", "Unified", "1280K");
  write(3, "3", "Unified", "24M");
  const std::vector<Cache> found = caches(root.path());
  REQUIRE(found.size() == 3);
  CHECK(found[0].name == "L1d");
  CHECK(found[0].bytes == 49152);
  CHECK(found[1].name == "L2");
  CHECK(found[1].bytes == 1310720);
  CHECK(found[2].name == "L3");
  CHECK(found[2].bytes == 25165824);
}
#endif
