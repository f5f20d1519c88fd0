#include "qwen/loop_stop.h"

#include <algorithm>

namespace qwen {
namespace {

constexpr int kLongestPeriod = 256;
constexpr int kTimes = 4;

}  // namespace

LoopWatch::LoopWatch(int most) : most_(most), equal_(kLongestPeriod + 1) {}

int LoopWatch::add(int id) {
  const int position = static_cast<int>(ids_.size());
  ids_.push_back(id);
  for (int period = 1; period <= std::min(position, kLongestPeriod); ++period) {
    const bool same = ids_[position - period] == id;
    equal_[period] = same ? equal_[period] + 1 : 0;
    if (equal_[period] >= std::max(most_, (kTimes - 1) * period)) return period;
  }
  return 0;
}

}  // namespace qwen
