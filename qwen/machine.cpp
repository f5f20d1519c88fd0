#include "qwen/machine.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace qwen {
namespace {

// 2 -> "2", 7.65 -> "7.65".
std::string number(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

#if defined(__linux__)

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "0-3,8" -> 0 1 2 3 8
std::set<int> cpu_list(const std::string& text) {
  std::set<int> cpus;
  std::istringstream ranges(text);
  for (std::string range; std::getline(ranges, range, ',');) {
    int from = 0, to = 0;
    const int found = std::sscanf(range.c_str(), "%d-%d", &from, &to);
    if (found < 1) continue;
    for (int cpu = from; cpu <= (found == 2 ? to : from); ++cpu) cpus.insert(cpu);
  }
  return cpus;
}

std::set<int> allowed_cpus() {
  // The mask must be as large as the kernel's; 8,192 CPUs are more than any has.
  std::vector<cpu_set_t> mask(8192 / CPU_SETSIZE);
  const std::size_t size = mask.size() * sizeof(cpu_set_t);
  std::set<int> cpus;
  if (sched_getaffinity(0, size, mask.data()) == 0) {
    for (int cpu = 0; cpu < 8192; ++cpu) {
      if (CPU_ISSET_S(cpu, size, mask.data())) cpus.insert(cpu);
    }
  }
  if (cpus.empty()) {
    for (int cpu = 0; cpu < static_cast<int>(std::thread::hardware_concurrency()); ++cpu)
      cpus.insert(cpu);
  }
  return cpus;
}

// Threads of one core list the same siblings: one set per core.
int cores_of(const std::set<int>& cpus, const std::string& root) {
  std::set<std::set<int>> cores;
  for (int cpu : cpus) {
    std::set<int> siblings =
        cpu_list(first_line(root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                            "/topology/thread_siblings_list"));
    if (siblings.empty()) siblings = {cpu};
    cores.insert(siblings);
  }
  return static_cast<int>(cores.size());
}

// The CPUs of the fast kind where there are two: Intel lists them, Arm gives every CPU a capacity.
std::set<int> performance_cpus(const std::set<int>& cpus, const std::string& root) {
  std::set<int> fast = cpu_list(first_line(root + "/sys/devices/cpu_core/cpus"));
  if (fast.empty()) {
    int highest = 0;
    for (int cpu : cpus) {
      const std::string capacity =
          first_line(root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpu_capacity");
      if (capacity.empty()) return cpus;
      const int value = std::atoi(capacity.c_str());
      if (value > highest) fast.clear();
      highest = std::max(highest, value);
      if (value == highest) fast.insert(cpu);
    }
  }
  std::set<int> both;
  std::set_intersection(cpus.begin(), cpus.end(), fast.begin(), fast.end(),
                        std::inserter(both, both.end()));
  return both.empty() ? cpus : both;
}

// CPUs that the tightest control group from this process's up to the root allows; 0 for no limit.
double cgroup_quota(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  std::string line, group;
  while (std::getline(groups, line)) {
    if (line.rfind("0::", 0) == 0) group = line.substr(3);
  }
  double tightest = 0;
  for (std::filesystem::path path = group; !path.empty(); path = path.parent_path()) {
    std::istringstream limit(first_line(root + "/sys/fs/cgroup" + path.string() + "/cpu.max"));
    double quota = 0, period = 0;
    if (limit >> quota >> period && quota > 0 && period > 0) {  // "max 100000" gives no number
      if (tightest == 0 || quota / period < tightest) tightest = quota / period;
    }
    if (path == path.parent_path()) break;
  }
  return tightest;
}

#endif

}  // namespace

#if defined(__linux__)

DefaultThreads default_threads(const std::string& root) {
  const std::set<int> allowed = allowed_cpus();
  const std::set<int> fast = performance_cpus(allowed, root);
  DefaultThreads best{cores_of(fast, root), ""};
  best.reason = number(best.count) + (fast.size() < allowed.size() ? " performance" : " physical") +
                (best.count == 1 ? " core" : " cores") + " allowed";
  const double quota = cgroup_quota(root);
  if (quota > 0 && quota < best.count) {
    best.count = std::max(1, static_cast<int>(quota));
    best.reason = "a quota of " + number(quota) + " CPUs";
  }
  return best;
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown CPU";
}

#elif defined(__APPLE__)

namespace {
int sysctl_int(const char* name) {
  int value = 0;
  std::size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 ? value : 0;
}
}  // namespace

DefaultThreads default_threads(const std::string&) {
  if (const int fast = sysctl_int("hw.perflevel0.physicalcpu"); fast > 0) {
    return {fast, number(fast) + " performance cores"};
  }
  const int cores = std::max(1, sysctl_int("hw.physicalcpu"));
  return {cores, number(cores) + " physical cores"};
}

std::string cpu_name() {
  char name[256] = "unknown CPU";
  std::size_t size = sizeof name;
  sysctlbyname("machdep.cpu.brand_string", name, &size, nullptr, 0);
  return name;
}

#else

DefaultThreads default_threads(const std::string&) {
  const int cpus = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return {cpus, number(cpus) + " logical CPUs"};
}

std::string cpu_name() {
  return "unknown CPU";
}

#endif

}  // namespace qwen
