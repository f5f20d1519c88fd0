#include "qwen/payoff.h"

#include <algorithm>

namespace qwen {
namespace {

constexpr int kRemembered = 16;      // a value's share of a mean is at least 1 / kRemembered
constexpr int kTrialRounds = 12;     // enough to tell 0.5 accepted drafts from 1
constexpr double kInterrupted = 3;   // times the mean: what took longer was somebody else's time
constexpr int kLongestPause = 1024;  // plain steps until drafting is tried again

void add_seconds(Mean& mean, double seconds) {
  add(mean, mean.count == 0 ? seconds : std::min(seconds, kInterrupted * mean.value));
}

}  // namespace

double break_even(const Costs& costs) {
  return (costs.drafts + costs.verify) / costs.plain - 1;
}

double speedup(const Costs& costs, double accepted) {
  return (1 + accepted) * costs.plain / (costs.drafts + costs.verify);
}

double acceptance_needed(double accepted, int count) {
  if (accepted <= 0) return 0;
  if (accepted >= count) return accepted / count;
  const auto expected = [&](double rate) {
    double sum = 0, all_so_far = 1;
    for (int i = 0; i < count; ++i) sum += all_so_far *= rate;
    return sum;
  };
  double low = 0, high = 1;
  for (int i = 0; i < 50; ++i) {  // the sum grows with the rate: halve the interval
    const double middle = (low + high) / 2;
    (expected(middle) < accepted ? low : high) = middle;
  }
  return high;
}

void add(Mean& mean, double value) {
  mean.count = std::min(mean.count + 1, kRemembered);
  mean.value += (value - mean.value) / mean.count;
}

bool drafts_now(const Payoff& payoff) {
  return payoff.plain_steps_left == 0;
}

void note_plain_step(Payoff& payoff, double seconds) {
  add_seconds(payoff.plain, seconds);
  if (payoff.plain_steps_left == 0 || --payoff.plain_steps_left > 0) return;
  payoff.trial_rounds_left = kTrialRounds;
  payoff.drafts = payoff.verify = payoff.accepted = {};
}

void note_round(Payoff& payoff, double drafts, double verify, int accepted) {
  add_seconds(payoff.drafts, drafts);
  add_seconds(payoff.verify, verify);
  add(payoff.accepted, accepted);
  if (payoff.trial_rounds_left > 0) --payoff.trial_rounds_left;
  if (payoff.trial_rounds_left > 0) return;
  if (payoff.accepted.value > break_even(costs(payoff))) {
    payoff.pause = kShortestPause;
  } else {
    payoff.plain_steps_left = payoff.pause;
    payoff.pause = std::min(2 * payoff.pause, kLongestPause);
  }
}

Costs costs(const Payoff& payoff) {
  return {payoff.plain.value, payoff.drafts.value, payoff.verify.value};
}

}  // namespace qwen
