#include "qwen/parallel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "qwen/machine.h"

namespace qwen {
namespace {

using Clock = std::chrono::steady_clock;

// A worker that has nothing to do watches for the next job this long before it sleeps: longer than
// the gaps inside a token and between two tokens, short against a person's reading.
constexpr auto kWatchful = std::chrono::milliseconds(20);
// Looks before it lets others have the core: about 20 microseconds.
constexpr int kEagerLooks = 512;

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Looks until `ready()`: first eagerly, then giving way to other threads, for which the core may
// have been waiting; false when kWatchful has passed.
template <class Ready>
bool watch(Ready ready) {
  for (int look = 0; look < kEagerLooks; ++look) {
    if (ready()) return true;
    pause();
  }
  const auto until = Clock::now() + kWatchful;
  while (Clock::now() < until) {
    if (ready()) return true;
    std::this_thread::yield();
  }
  return ready();
}

thread_local bool inside_a_piece = false;

// A job is announced by one word: its number, and how many of its pieces nobody has taken yet.
// Taking some is one compare-and-swap on that word. It fails if the job is over, whatever else
// has changed meanwhile, so a worker that wakes late takes nothing and nobody waits for it.
class Team {
 public:
  ~Team() { resize(1); }

  int size() const { return size_; }

  int resize(int n) {
    stop_ = true;
    wake();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
    stop_ = false;
    size_ = 1;
    try {
      for (; size_ < n; ++size_) workers_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      // The system allows no more threads: the team is the one that started.
    }
    return size_;
  }

  void run(int n, int grain, const std::function<void(int, int)>& body) {
    n_.store(n, std::memory_order_relaxed);
    grain_.store(grain, std::memory_order_relaxed);
    body_.store(&body, std::memory_order_relaxed);
    const std::uint32_t pieces = static_cast<std::uint32_t>((n + grain - 1) / grain);
    pieces_.store(pieces, std::memory_order_relaxed);
    shares_.store(static_cast<std::uint32_t>(2 * size()), std::memory_order_relaxed);
    finished_.store(0, std::memory_order_relaxed);
    error_ = nullptr;
    job_.store(((job_.load() >> 32) + 1) << 32 | pieces);
    if (sleepers_.load() > 0) wake();

    take_pieces();
    const auto over = [&] { return finished_.load(std::memory_order_acquire) == pieces; };
    while (!watch(over)) {
      // Somebody holds a piece and does not get a core: leave ours to them.
      const std::uint32_t seen = finished_.load();
      if (seen != pieces) finished_.wait(seen);
    }
    if (error_) std::rethrow_exception(error_);
  }

 private:
  static std::uint32_t untaken(std::uint64_t job) { return static_cast<std::uint32_t>(job); }

  void take_pieces() {
    std::uint64_t job = job_.load(std::memory_order_acquire);
    while (untaken(job) > 0) {
      const int n = n_.load(std::memory_order_relaxed);
      const int grain = grain_.load(std::memory_order_relaxed);
      const auto* body = body_.load(std::memory_order_relaxed);
      const std::uint32_t pieces = pieces_.load(std::memory_order_relaxed);
      const std::uint32_t shares = shares_.load(std::memory_order_relaxed);
      const std::uint32_t taken = std::max(1u, untaken(job) / shares);
      // If this succeeds, the job was still open, and what was just read belongs to it.
      if (!job_.compare_exchange_weak(job, job - taken, std::memory_order_acq_rel)) continue;
      int begin = static_cast<int>(pieces - untaken(job)) * grain;
      for (std::uint32_t i = 0; i < taken; ++i, begin += grain) {
        do_piece(*body, begin, std::min(begin + grain, n));
      }
      if (finished_.fetch_add(taken, std::memory_order_acq_rel) + taken == pieces) {
        finished_.notify_one();
      }
      job = job_.load(std::memory_order_acquire);
    }
  }

  void do_piece(const std::function<void(int, int)>& body, int begin, int end) {
    inside_a_piece = true;
    try {
      body(begin, end);
    } catch (...) {
      std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
    }
    inside_a_piece = false;
  }

  void work() {
    const auto called = [&] { return untaken(job_.load(std::memory_order_acquire)) > 0 || stop_; };
    while (!stop_) {
      if (!watch(called)) {
        sleepers_.fetch_add(1);
        const std::uint32_t seen = alarm_.load();
        if (!called()) alarm_.wait(seen);
        sleepers_.fetch_sub(1);
      }
      take_pieces();
    }
  }

  void wake() {
    alarm_.fetch_add(1);
    alarm_.notify_all();
  }

  std::vector<std::thread> workers_;
  std::atomic<int> size_ = 1;  // workers and the caller
  std::atomic<bool> stop_ = false;

  std::atomic<std::uint64_t> job_ = 0;  // number of the job << 32 | pieces nobody has taken
  std::atomic<int> n_ = 0, grain_ = 1;
  std::atomic<std::uint32_t> pieces_ = 0, shares_ = 1;
  std::atomic<const std::function<void(int, int)>*> body_ = nullptr;
  std::atomic<std::uint32_t> finished_ = 0;  // pieces
  std::mutex error_mutex_;
  std::exception_ptr error_;

  std::atomic<int> sleepers_ = 0;
  std::atomic<std::uint32_t> alarm_ = 0;
};

std::mutex team_mutex;  // held by whoever gives the team work or changes it

// Not destroyed at exit: a static destructor elsewhere may still compute.
Team& team() {
  static Team* only = [] {
    Team* made = new Team;
    made->resize(default_threads().count);
    return made;
  }();
  return *only;
}

}  // namespace

void parallel_for(int n, int grain, const std::function<void(int, int)>& body) {
  if (grain < 1) throw std::invalid_argument("[parallel_for] grain must be at least 1");
  // Before the lock: what runs alone may call this again, and a mutex is not taken twice.
  const bool is_alone = n <= grain || inside_a_piece || team().size() == 1;
  std::unique_lock lock(team_mutex, std::defer_lock);
  if (is_alone || !lock.try_lock()) {
    for (int begin = 0; begin < n; begin += grain) body(begin, std::min(begin + grain, n));
    return;
  }
  team().run(n, grain, body);
}

int thread_count() {
  return team().size();
}

int set_thread_count(int n) {
  if (n < 1) {
    throw std::invalid_argument("[parallel] " + std::to_string(n) +
                                " threads asked for; at least 1 is needed");
  }
  std::lock_guard lock(team_mutex);
  return team().resize(n);
}

}  // namespace qwen
