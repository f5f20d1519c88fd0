#include "qwen/speed_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "qwen/parallel.h"
#include "qwen/random_model.h"
#include "qwen/tables.h"
#include "qwen/task.h"

namespace qwen {
namespace {

// ---- what is given to others ----

// One region of the team that is over when every thread has been there.
void meet() {
  const int team = thread_count();
  std::atomic<int> here = 0;
  parallel_for(team, 1, [&](int, int) {
    ++here;
    while (here < team) std::this_thread::yield();
  });
}

// A thread that works while its caller sleeps, and sleeps when it has nothing to do: a pool of the
// usual kind, reduced to the two changes of guard that every job costs.
class Handover {
 public:
  Handover() : worker_([this] { work(); }) {}
  ~Handover() {
    {
      std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    worker_.join();
  }

  void run(const std::function<void()>& job) {
    std::unique_lock lock(mutex_);
    job_ = &job;
    changed_.notify_all();
    changed_.wait(lock, [&] { return job_ == nullptr; });
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return job_ != nullptr || over_; });
      if (over_) return;
      (*job_)();
      job_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* job_ = nullptr;
  bool over_ = false;
  std::thread worker_;  // the last, since it uses all others
};

template <class Result, class... In>
std::function<Result(In...)> inside(std::function<Result(In...)> op, const Around& around) {
  return [=](In... in) {
    if constexpr (std::is_void_v<Result>) {
      around([&] { op(in...); });
    } else {
      Result result;
      around([&] { result = op(in...); });
      return result;
    }
  };
}

// ---- runs ----

Run each(int count, const std::function<void()>& work) {
  Run run = timed([&] {
    for (int i = 0; i < count; ++i) work();
  });
  run.seconds[0] /= count;
  return run;
}

// A region after a pause in which all workers have gone to sleep.
Run meet_asleep() {
  constexpr int kPauses = 4;
  constexpr auto kLongEnough = std::chrono::milliseconds(60);
  double seconds = 0;
  for (int i = 0; i < kPauses; ++i) {
    std::this_thread::sleep_for(kLongEnough);
    seconds += timed(meet).seconds[0];
  }
  return {{seconds / kPauses}};
}

// A small model, a text before the steps, and how steps are run.
struct Subject {
  std::string name;
  Model model;
  State state;
  int context, steps;
};

Run run_subject(Subject& subject, const Ops& ops) {
  rewind(subject.model.config, subject.state, subject.context);
  return run_steps(subject.model, ops, subject.state, subject.steps);
}

// How many small operators a step has.
int count_small_ops(Subject& subject) {
  int count = 0;
  const Ops counted = small_ops_around(empty_ops(), [&](const std::function<void()>& work) {
    ++count;
    work();
  });
  rewind(subject.model.config, subject.state, subject.context);
  run_steps(subject.model, counted, subject.state, 1);
  return count;
}

// ---- rows ----

Row new_pool_row(const Speed& speed, const std::string& metric, const Subject& subject,
                 const std::string& unit) {
  Row row = new_row(speed, "pool", metric, DType::F32, unit);
  row.model = subject.name;
  return row;
}

void add_time_row(Speed& speed, const std::string& metric, const Subject& subject,
                  const std::vector<Run>& runs) {
  Row row = new_pool_row(speed, metric, subject, "ms");
  set_times(row, summarise(runs));
  speed.rows.push_back(row);
}

void add_decode_row(Speed& speed, const std::string& metric, const Subject& subject,
                    double predicted_seconds, const std::vector<Run>& runs) {
  Row row = new_pool_row(speed, metric, subject, "tok/s");
  row.tokens = subject.steps;
  row.context = subject.context;
  const Summary times = summarise(runs);
  set_times(row, times, subject.steps);
  row.output_hash = times.hash;
  const Cost cost = forward_cost(subject.model.config, DType::F32, 1, subject.context);
  row.limit = 1 / least_seconds(cost, DType::F32, best_limits(speed));
  row.predicted = 1 / predicted_seconds;
  speed.rows.push_back(row);
}

double value(const Speed& speed, const std::string& metric) {
  return find_row(rows_of(speed, "pool"), metric, speed.threads)->value;
}

std::string conclusion(const Speed& speed, const Subject& subject, int small_ops) {
  const auto microseconds = [&](const char* metric) {
    return figure(1e3 * value(speed, metric)) + " us";
  };
  const double decode = value(speed, "decode");
  const auto lost = [&](const char* metric) {
    return percent(std::max(0.0, 1 - value(speed, metric) / decode));
  };
  return "All threads have come to a region after " + microseconds("region_awake") +
         " while they watch for it, after " + microseconds("region_asleep") +
         " when they sleep; work handed to a sleeping thread, by a caller who sleeps meanwhile, is "
         "back after " +
         microseconds("handover") + ". A step of " + subject.name + " has " +
         std::to_string(small_ops) +
         " small operators. Each of them a region of a team that watches would cost " +
         lost("decode_regions") + " of the speed, each of them handed over " +
         lost("decode_handover") + ". The empty step takes " + figure(value(speed, "empty_step")) +
         " ms, " + percent(value(speed, "empty_step") / 1e3 * decode) + " of a real one. " +
         (same_output(rows_of(speed, "pool")) ? "All write the same tokens."
                                              : "THEY WRITE DIFFERENT TOKENS.");
}

}  // namespace

Ops small_ops_around(const Ops& ops, const Around& around) {
  Ops changed = ops;
  changed.rms_norm = inside(ops.rms_norm, around);
  changed.gated_rms_norm = inside(ops.gated_rms_norm, around);
  changed.swiglu = inside(ops.swiglu, around);
  changed.rope = inside(ops.rope, around);
  changed.attention = inside(ops.attention, around);
  changed.sigmoid_gate = inside(ops.sigmoid_gate, around);
  changed.conv_qkv = inside(ops.conv_qkv, around);
  return changed;
}

Ops empty_ops() {
  Ops ops;
  ops.rms_norm = [](const Tensor2& x, const Tensor1&, float) {
    return zeros(dim(x, 0), dim(x, 1));
  };
  ops.gated_rms_norm = [](const Tensor2& x, const Tensor2&, const Tensor1&, float) {
    return zeros(dim(x, 0), dim(x, 1));
  };
  ops.products = [](const Tensor2& x, std::span<const Weight* const> ws) {
    meet();
    std::vector<Tensor2> ys;
    for (const Weight* w : ws) ys.push_back(zeros(dim(x, 0), w->rows));
    return ys;
  };
  ops.swiglu = [](const Tensor2& gate, const Tensor2&) {
    return zeros(dim(gate, 0), dim(gate, 1));
  };
  ops.rope = [](Tensor3&, const Tensor2&, const Tensor2&) {};
  ops.attention = [](const Tensor3& q, const Tensor3&, const Tensor3&, int) {
    return zeros(dim(q, 0), dim(q, 1) * dim(q, 2));
  };
  ops.sigmoid_gate = ops.swiglu;
  ops.conv_qkv = [](const Tensor2& in, const Tensor2&, const Ops::Heads& heads, Tensor2&) {
    const int T = dim(in, 0);
    return Qkv{zeros(T, heads.Hk, heads.Dk), zeros(T, heads.Hk, heads.Dk),
               zeros(T, heads.Hv, heads.Dv)};
  };
  ops.delta_rule = [](const Qkv& qkv, const Tensor2&, const Tensor2&, const std::vector<int>&,
                      Tensor3&) { return zeros(dim(qkv.v, 0), dim(qkv.v, 1), dim(qkv.v, 2)); };
  return ops;
}

std::string pool_part_on(Speed& speed, const Config& config, const std::string& name) {
  if (speed.threads == 1) return "One thread has nobody to wake.";
  constexpr int kRegions = 2000, kHandovers = 500;
  const int steps = speed.full ? 64 : 12;
  Subject subject{name, random_model(config, DType::F32).model,
                  filled_state(config, speed.prompt, steps), speed.prompt, steps};
  Handover handover;
  const Ops ops = fast_ops();
  const Ops regions = small_ops_around(ops, [](const std::function<void()>& work) {
    meet();
    work();
  });
  const Ops handed =
      small_ops_around(ops, [&](const std::function<void()>& work) { handover.run(work); });

  std::vector<Contender> contenders = {probe(speed, speed.threads)};
  const auto add = [&](const std::string& what, const std::function<Run()>& run) {
    contenders.push_back(on_team(speed.threads, what, run));
  };
  add("region_awake", [] { return each(kRegions, meet); });
  add("region_asleep", meet_asleep);
  add("handover", [&] { return each(kHandovers, [&] { handover.run([] {}); }); });
  add("empty_step", [&] {
    Run run = run_subject(subject, empty_ops());
    run.seconds[0] /= steps;
    return run;
  });
  add("decode", [&] { return run_subject(subject, ops); });
  add("decode_regions", [&] { return run_subject(subject, regions); });
  add("decode_handover", [&] { return run_subject(subject, handed); });
  const auto runs = measure("pool", contenders, speed.rounds);
  if (std::any_of(runs.begin(), runs.end(), [](const auto& own) { return own.empty(); })) return "";

  note_limits(speed, speed.threads, runs[0]);
  for (std::size_t i = 1; i <= 4; ++i) add_time_row(speed, contenders[i].name, subject, runs[i]);
  const int small_ops = count_small_ops(subject);
  const OperatorCosts costs = operator_costs(config, DType::F32, 1, speed.prompt);
  add_decode_row(speed, "decode", subject,
                 predicted_seconds(costs, DType::F32, speed.limits.at(speed.threads)), runs[5]);
  const double plain = 1 / value(speed, "decode");
  const auto with = [&](const char* each) { return plain + small_ops * value(speed, each) / 1e3; };
  add_decode_row(speed, "decode_regions", subject, with("region_awake"), runs[6]);
  add_decode_row(speed, "decode_handover", subject, with("handover"), runs[7]);
  return conclusion(speed, subject, small_ops);
}

std::string pool_part(Speed& speed) {
  const std::string name = "smollm2-135m";
  return pool_part_on(speed, named_shape(name), name);
}

}  // namespace qwen
