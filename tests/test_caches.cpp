#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "qwen/caches.h"

using namespace qwen;
namespace fs = std::filesystem;

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
  const fs::path root = fs::temp_directory_path() / "qwen_caches";
  const auto write = [&](int index, const char* level, const char* type, const char* size) {
    const fs::path at =
        root / "sys/devices/system/cpu/cpu0/cache" / ("index" + std::to_string(index));
    fs::create_directories(at);
    std::ofstream(at / "level") << level << "\n";
    std::ofstream(at / "type") << type << "\n";
    std::ofstream(at / "size") << size << "\n";
  };
  write(0, "1", "Data", "48K");
  write(1, "1", "Instruction", "32K");
  write(2, "2", "Unified", "1280K");
  write(3, "3", "Unified", "24M");
  const std::vector<Cache> found = caches(root.string());
  fs::remove_all(root);
  REQUIRE(found.size() == 3);
  CHECK(found[0].name == "L1d");
  CHECK(found[0].bytes == 49152);
  CHECK(found[1].name == "L2");
  CHECK(found[1].bytes == 1310720);
  CHECK(found[2].name == "L3");
  CHECK(found[2].bytes == 25165824);
}
#endif
