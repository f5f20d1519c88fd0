// Does drafting pay? The arithmetic, and a switch that follows it.
//
// A round of m drafts costs `drafts + verify` seconds and gives 1 + a tokens, a of them accepted
// drafts; in that time plain steps would give (drafts + verify) / plain. So it pays where
//
//   1 + a  >  (drafts + verify) / plain
//
// On a CPU or GPU that waits for memory, a row more in a call is nearly free, and verify is hardly
// more than plain. Where arithmetic is the limit, m + 1 rows cost nearly m + 1 steps.
#pragma once

namespace qwen {

// Seconds, of one plain step; of all drafts of a round; of reading them, the verdict and going
// back.
struct Costs {
  double plain = 0, drafts = 0, verify = 0;
};

// Drafts that a round must have accepted, on average, to be as fast as plain steps. It pays above.
double break_even(const Costs& costs);

// Tokens per second, as a multiple of those of plain steps, when `accepted` drafts are on average.
double speedup(const Costs& costs, double accepted);

// The probability r that a draft must be accepted with, if all before it were, so that of `count`
// drafts r + r² + … are accepted on average. Above 1: even if all are, it is not enough.
double acceptance_needed(double accepted, int count);

// The mean of the latest values: old ones fade.
struct Mean {
  double value = 0;
  int count = 0;
};
void add(Mean& mean, double value);

// The switch: some plain steps first, then some rounds on trial, then rounds as long as they pay;
// when they do not, plain steps for a while, and another trial, since the text may have become
// easier to guess. The pause doubles with every trial that fails.
inline constexpr int kShortestPause = 32;
struct Payoff {
  Mean plain, drafts, verify, accepted;
  int plain_steps_left = 4;
  int trial_rounds_left = 0;
  int pause = kShortestPause;
};
bool drafts_now(const Payoff& payoff);
void note_plain_step(Payoff& payoff, double seconds);
void note_round(Payoff& payoff, double drafts, double verify, int accepted);
Costs costs(const Payoff& payoff);

}  // namespace qwen
