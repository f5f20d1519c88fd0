#include "qwen/machine_record.h"

#include <cblas.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

#include "qwen/caches.h"
#include "qwen/linear.h"
#include "qwen/machine.h"

#if defined(__APPLE__)
#include <mach/mach.h>
#include <sys/sysctl.h>
#endif

namespace qwen {
namespace {

// The number after "MemAvailable:" in a file of the kernel's, in bytes; 0 where there is none.
[[maybe_unused]] std::size_t kilobytes_in(const char* file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(key, 0) == 0) return std::strtoull(line.c_str() + key.size(), nullptr, 10) << 10;
  }
  return 0;
}

[[maybe_unused]] std::size_t number_in(const std::string& file) {
  std::size_t value = 0;
  std::ifstream(file) >> value;
  return value;
}

// What a command prints, without the line's end; empty where it fails.
std::string output_of(const std::string& command) {
  std::string text;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (!pipe) return text;
  char line[256];
  while (std::fgets(line, sizeof line, pipe.get())) text += line;
  text.erase(std::find(text.begin(), text.end(), '\n'), text.end());
  return text;
}

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "gcc " __VERSION__;
#endif
}

std::string in_units(std::size_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 3; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, value < 10 && unit == 3 ? "%.1f %s" : "%.0f %s", value,
                units[unit]);
  return text;
}

}  // namespace

#if defined(__linux__)

std::size_t total_memory() {
  return kilobytes_in("/proc/meminfo", "MemTotal:");
}

std::size_t free_memory() {
  const std::size_t free = kilobytes_in("/proc/meminfo", "MemAvailable:");
  const std::size_t limit = number_in("/sys/fs/cgroup/memory.max");  // "max" gives 0
  const std::size_t used = number_in("/sys/fs/cgroup/memory.current");
  return limit > used ? std::min(free, limit - used) : free;
}

std::size_t resident_memory() {
  return kilobytes_in("/proc/self/status", "VmRSS:");
}

#elif defined(__APPLE__)

namespace {
std::size_t sysctl_number(const char* name) {
  std::uint64_t value = 0;
  std::size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 ? value : 0;
}
}  // namespace

std::size_t total_memory() {
  return sysctl_number("hw.memsize");
}

// The system gives memory away as it is asked for; half of it can be had without hurting anybody.
std::size_t free_memory() {
  return total_memory() / 2;
}

std::size_t resident_memory() {
  mach_task_basic_info info{};
  mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
  task_info(mach_task_self(), MACH_TASK_BASIC_INFO, reinterpret_cast<task_info_t>(&info), &count);
  return info.resident_size;
}

#endif

double load_average() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

// As it was measured: "rows of W for 1 / 4 / 8 rows of x: apart / apart / adjacent (f32), …"
std::string reading_order() {
  std::string rows, orders;
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    if (dtype != DType::F32) orders += ", ";
    for (const char* between = ""; const auto& sample : fast::reading_speeds(dtype).samples) {
      if (dtype == DType::F32) rows += between + std::to_string(sample.rows);
      orders += std::string(between) + fast::kReadingNames[static_cast<int>(sample.fastest())];
      between = " / ";
    }
    orders += std::string(" (") + format(dtype).name + ")";
  }
  return "rows of W for " + rows + " rows of x: " + orders;
}

OrderedJson machine_record() {
  const DefaultThreads threads = default_threads();
  OrderedJson json;
  json["cpu"] = cpu_name();
  json["default_threads"] = threads.count;
  json["default_threads_reason"] = threads.reason;
  json["logical_cpus"] = std::thread::hardware_concurrency();
  json["caches"] = OrderedJson::object();
  for (const Cache& cache : caches()) json["caches"][cache.name] = cache.bytes;
  json["memory"] = total_memory();
  json["free_memory"] = free_memory();
  utsname system{};
  uname(&system);
  json["system"] = std::string(system.sysname) + " " + system.release + " " + system.machine;
  json["compiler"] = compiler();
  json["blas"] = std::string(openblas_get_config());
  json["blas_kernel"] = std::string(openblas_get_corename());
  json["kernel"] = std::string(fast::linear_kernel());
  json["reading"] = reading_order();
  json["git_revision"] =
      output_of("git -C '" QWEN_SOURCE_DIR "' describe --always --dirty 2>/dev/null");
  return json;
}

std::string describe(const OrderedJson& m) {
  std::ostringstream text;
  text << m["cpu"].get<std::string>() << ", " << m["default_threads_reason"].get<std::string>()
       << ", " << m["logical_cpus"] << " logical CPUs";
  for (const auto& [name, bytes] : m["caches"].items())
    text << ", " << name << ' ' << in_units(bytes);
  text << "\n"
       << in_units(m["free_memory"]) << " of " << in_units(m["memory"]) << " memory free, "
       << m["system"].get<std::string>() << "\n"
       << m["kernel"].get<std::string>() << ", " << m.value("reading", "") << "; "
       << m["compiler"].get<std::string>() << "; " << m["blas"].get<std::string>() << ", kernel "
       << m["blas_kernel"].get<std::string>() << "; revision "
       << m["git_revision"].get<std::string>() << "\n";
  return text.str();
}

}  // namespace qwen
