#include "qwen/truncation.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <utility>

namespace qwen {
namespace {

// An entry is never freed, only used again: the handler can come at any time.
struct Mapping {
  std::atomic<const std::byte*> begin = nullptr;  // nullptr: free for the next
  std::size_t size = 0;
  std::string line;
  Mapping* next = nullptr;
};

std::mutex mappings_mutex;  // held by whoever changes an entry
std::atomic<Mapping*> mappings = nullptr;

struct sigaction action_before;

// May only use what is safe in the middle of anything: no memory is taken, no lock.
void on_bus_error(int, siginfo_t* info, void*) {
  static std::atomic_flag is_said;
  const auto* touched = static_cast<const std::byte*>(info->si_addr);
  for (const Mapping* mapping = mappings.load(); mapping != nullptr; mapping = mapping->next) {
    const std::byte* begin = mapping->begin.load();
    if (begin == nullptr || touched < begin || touched >= begin + mapping->size) continue;
    while (is_said.test_and_set()) pause();  // another thread is about to end the program
    [[maybe_unused]] const ssize_t ignored =
        write(STDERR_FILENO, mapping->line.data(), mapping->line.size());
    _exit(1);
  }
  sigaction(SIGBUS, &action_before, nullptr);
  raise(SIGBUS);
}

void install_handler() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, &action_before);
}

// An entry that is free, or a new one.
Mapping& free_entry() {
  for (Mapping* mapping = mappings.load(); mapping != nullptr; mapping = mapping->next) {
    if (mapping->begin.load() == nullptr) return *mapping;
  }
  auto* added = new Mapping;
  added->next = mappings.load();
  mappings.store(added);
  return *added;
}

}  // namespace

void watch_mapping(const std::byte* begin, std::size_t size, std::string line) {
  static std::once_flag is_installed;
  std::call_once(is_installed, install_handler);
  std::lock_guard lock(mappings_mutex);
  Mapping& mapping = free_entry();
  mapping.size = size;
  mapping.line = std::move(line);
  mapping.begin.store(begin);  // from here on the handler takes notice of it
}

void forget_mapping(const std::byte* begin) {
  std::lock_guard lock(mappings_mutex);
  for (Mapping* mapping = mappings.load(); mapping != nullptr; mapping = mapping->next) {
    if (mapping->begin.load() == begin) mapping->begin.store(nullptr);
  }
}

}  // namespace qwen
