#include "qwen/profile.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>
#include <vector>

namespace qwen {
namespace {

// Adds the time until the end of its scope to an entry.
class Stopwatch {
 public:
  Stopwatch(Profile& profile, const std::string& name) : entry_(profile.entries[name]) {}
  ~Stopwatch() {
    entry_.seconds += std::chrono::duration<double>(Clock::now() - start_).count();
    ++entry_.calls;
  }
  Profile::Entry& entry() { return entry_; }

 private:
  using Clock = std::chrono::steady_clock;
  Profile::Entry& entry_;
  Clock::time_point start_ = Clock::now();
};

// The same call with a stopwatch around it.
template <class Result, class... In>
std::function<Result(In...)> timed(std::function<Result(In...)> op, Profile& profile,
                                   const std::string& name) {
  return [op = std::move(op), &profile, name](In... in) {
    Stopwatch watch(profile, name);
    return op(std::forward<In>(in)...);
  };
}

// "model.layers.3.mlp.up_proj.weight" -> "mlp.up_proj": one entry for all layers.
std::string kind_of(const std::string& weight) {
  std::string kind = weight.substr(0, weight.rfind(".weight"));
  for (const char* prefix : {"model.", "layers."}) {
    if (kind.starts_with(prefix)) kind = kind.substr(std::string(prefix).size());
  }
  if (!kind.empty() && std::isdigit(static_cast<unsigned char>(kind[0]))) {
    kind = kind.substr(kind.find('.') + 1);
  }
  return kind;
}

// "mlp.gate_proj +1": products of one x, by the first and how many more.
std::string kind_of(std::span<const Weight* const> ws) {
  const std::string more = ws.size() == 1 ? "" : " +" + std::to_string(ws.size() - 1);
  return kind_of(ws[0]->name) + more;
}

}  // namespace

Ops timed_ops(const Ops& ops, Profile& profile) {
  Ops watched = ops;
  watched.rms_norm = timed(ops.rms_norm, profile, "rms_norm");
  watched.gated_rms_norm = timed(ops.gated_rms_norm, profile, "gated_rms_norm");
  watched.swiglu = timed(ops.swiglu, profile, "swiglu");
  watched.rope = timed(ops.rope, profile, "rope");
  watched.attention = timed(ops.attention, profile, "attention");
  watched.sigmoid_gate = timed(ops.sigmoid_gate, profile, "sigmoid_gate");
  watched.conv_qkv = timed(ops.conv_qkv, profile, "conv_qkv");
  watched.delta_rule = [&profile, op = ops.delta_rule](
                           const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                           const std::vector<int>& key_head, Tensor3& S) {
    Stopwatch watch(profile, "delta_rule");
    watch.entry().bytes += 2.0 * S.size() * sizeof(float);
    return op(qkv, g, beta, key_head, S);
  };
  watched.products = [&profile, op = ops.products](const Tensor2& x,
                                                   std::span<const Weight* const> ws) {
    Stopwatch watch(profile, "linear " + kind_of(ws));
    for (const Weight* w : ws) {
      watch.entry().bytes += static_cast<double>(bytes(*w));
      watch.entry().additions += static_cast<double>(dim(x, 0)) * w->rows * w->cols;
    }
    return op(x, ws);
  };
  return watched;
}

std::string report(const Profile& profile, double total_seconds) {
  std::vector<std::pair<std::string, Profile::Entry>> lines(profile.entries.begin(),
                                                            profile.entries.end());
  std::sort(lines.begin(), lines.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  std::string text =
      "operator                            calls         ms      %    GB/s  GFLOP/s\n";
  char line[160];
  double rest = total_seconds;
  for (const auto& [name, entry] : lines) {
    rest -= entry.seconds;
    std::snprintf(line, sizeof line, "%-34s %6ld %10.3f %6.1f", name.c_str(), entry.calls,
                  entry.seconds * 1e3, 100 * entry.seconds / total_seconds);
    text += line;
    if (entry.bytes > 0) {
      std::snprintf(line, sizeof line, " %7.1f", entry.bytes / entry.seconds / 1e9);
      text += line;
    }
    if (entry.additions > 0) {
      std::snprintf(line, sizeof line, " %8.1f", 2 * entry.additions / entry.seconds / 1e9);
      text += line;
    }
    text += "\n";
  }
  std::snprintf(line, sizeof line, "%-34s %6s %10.3f %6.1f\n", "between operators", "", rest * 1e3,
                100 * rest / total_seconds);
  return text + line;
}

}  // namespace qwen
