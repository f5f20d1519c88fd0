// Guess, then look: drafts of the tokens to come, and the model's verdict on them.
//
//   drafter ─ d1 … dk ─ one call of the model on all of them ─ verify ─ d1 … da, and one more
//
// verify() keeps the text what it would have been: word for word where the likeliest token is
// chosen, in distribution where tokens are drawn.
#pragma once

#include <functional>
#include <random>
#include <span>
#include <vector>

#include "qwen/mtp.h"
#include "qwen/sampler.h"

namespace qwen {

// A guess, and the distribution it was drawn from.
struct Draft {
  int id;
  Distribution from;
};

// Whatever guesses. It is told of every row the model reads, in order: hidden [T, hidden_size],
// the states after the final norm, and next_ids [T], the token after each; T may be 0. It then
// guesses `count` tokens to follow the last of next_ids. `history` holds all tokens so far.
using Drafter = std::function<std::vector<Draft>(
    const Tensor2& hidden, std::span<const int> next_ids, int count, const History& history,
    std::mt19937_64& generator)>;

// Drafts with the MTP layer, its own output taking the place of the hidden states it does not have
// yet. What these drafts left in its KV cache is replaced once the true states are known.
// Everything given must outlive the drafter.
Drafter mtp_drafter(const Model& model, const Ops& ops, const Mtp& mtp, const Sampling& sampling);

// logits [drafts + 1, vocab_size], of the last token of the text and of every draft -> the drafts
// that are accepted, and one token of the model's own behind them. All are added to `history`.
//
// A draft d, drawn from q where the model's own distribution is p, is accepted with probability
// min(1, p(d) / q(d)); the token in the place of a rejected one is drawn from the excess of p.
std::vector<int> verify(const Tensor2& logits, std::span<const Draft> drafts,
                        const Sampling& sampling, History& history, std::mt19937_64& generator);

// max(p - q, 0), divided by its sum: what is missing where tokens of q were accepted.
Distribution excess(const Distribution& p, const Distribution& q);

}  // namespace qwen
