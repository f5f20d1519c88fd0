// From logits to the next token: penalties, temperature, and which tokens may be drawn at all.
//
//   logits ─ penalties ─ / temperature ─ top-k ─ softmax ─ top-p ─ min-p ─ distribution ─ draw
//
// Order and formulas are transformers' (the LogitsProcessorList of its generate()); presence and
// frequency, which it lacks, are vLLM's (apply_penalties).
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace qwen {

// How tokens are chosen. The defaults change nothing: always the likeliest token.
struct Sampling {
  double temperature = 0;  // 0: greedy, the likeliest token
  int top_k = 0;           // only the k likeliest; 0, or more than there are: all
  double top_p = 1;        // only the fewest likeliest that together reach top_p
  double min_p = 0;        // only those at least min_p times as likely as the likeliest
  // Of tokens in prompt or answer, logits above 0 are divided by it, those below multiplied.
  double repetition_penalty = 1;
  double presence_penalty = 0;   // taken once off the logits of tokens that the answer has
  double frequency_penalty = 0;  // taken off for each time the answer has them
  std::uint64_t seed = 0;
};

// std::invalid_argument, one line, for what no distribution follows from: NaN, a temperature below
// 0, top_p outside (0, 1], …
void check_sampling(const Sampling& sampling);
// The same for what a file says: std::runtime_error that names it.
void check_sampling(const Sampling& sampling, const std::string& file);

// What penalties look at: every token of the prompt and of the answer so far.
struct History {
  std::unordered_map<int, int> counts;  // token -> how often the answer has it; 0: only the prompt
};
void add_prompt(History& history, std::span<const int> ids);
void add_answer(History& history, int id);

// Tokens that may come next, by ascending id; every probability is above 0, their sum is 1.
struct Candidate {
  int id;
  double probability;
};
using Distribution = std::vector<Candidate>;

// logits [vocab_size] of one position: finite, or -infinity for tokens that must not come. Greedy:
// a single candidate (of equals the lowest id). std::invalid_argument where check_sampling throws,
// where the largest logit is not finite, and for a history of tokens that are not in the
// vocabulary.
Distribution distribution(std::span<const float> logits, const Sampling& sampling,
                          const History& history);

// Of a token; 0 where it is no candidate.
double probability(const Distribution& distribution, int id);

// The next number in [0, 1) of a generator: its top 53 bits. The standard fixes the generator's
// numbers, but not those of its distributions, which differ from library to library.
double uniform(std::mt19937_64& generator);

// The token in whose share of [0, 1) `u` falls.
int draw(const Distribution& distribution, double u);

}  // namespace qwen
