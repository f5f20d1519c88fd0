// Speculative decoding: the loop of generate(), several tokens at a time.
//
//   a round:  drafter ─ m drafts ─ the model reads last token + drafts, m + 1 rows in one call
//             ─ verify ─ a accepted and one more ─ roll back m - a rows
#pragma once

#include <cstdint>

#include "qwen/draft.h"
#include "qwen/generate.h"
#include "qwen/payoff.h"

namespace qwen {

enum class Drafting {
  always,         // in every round
  while_it_pays,  // see Payoff. Follows the clock, and so which random numbers serve for what: the
                  // same seed may give another text, of the same distribution. Greedy text stays.
};

// What came of it. One serves for all answers of a conversation: speculate() adds to it, while
// tokens come, and the switch learns from all of them.
struct DraftStats {
  std::vector<int> rounds;  // [m + 1]: how many rounds had 0, 1, … m drafts accepted
  int plain_steps = 0;      // steps without drafts
  Costs seconds;            // of all plain steps, all drafts, all verifications together
  Payoff payoff;
};
int round_count(const DraftStats& stats);
double mean_accepted(const DraftStats& stats);  // drafts per round
Costs mean_costs(const DraftStats& stats);      // seconds per step, per round

// As generate(), with up to `count` drafts a round; `drafter` may be empty: there are none then.
// Greedy, the answer and the sequence's state at the end are those of generate(), bit for bit;
// without drafts also where tokens are drawn.
Answer speculate(const Model& model, const Ops& ops, const Drafter& drafter, int count,
                 Drafting drafting, Sequence& sequence, std::span<const int> prompt,
                 const Sampling& sampling, int max_tokens, const OnToken& on_token,
                 DraftStats& stats);

// 64 bits that tell texts apart (FNV-1a).
std::uint64_t text_hash(std::span<const int> ids);

// std::runtime_error unless a greedy run with drafts wrote what the plain run did. A wrong rollback
// may look faster than a right one, since text that goes in circles is easy to guess: no speed
// counts before this.
void expect_same_text(std::span<const int> plain, std::span<const int> drafted, int count);

}  // namespace qwen
