#include "qwen/sampler.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>

#include "qwen/simd.h"

namespace qwen {
namespace {

// ---- what is wrong with a Sampling ----

void expect(bool right, const char* name, double found, const char* expected) {
  if (right) return;
  char digits[32];  // all it has: 1.0000001 is not 1
  const auto written = std::to_chars(digits, digits + sizeof digits, found);
  throw std::invalid_argument("[sampling] " + std::string(name) + " is " +
                              std::string(digits, written.ptr) + ", expected " + expected);
}

// ---- scores: logits after penalties and temperature, in float32 as the reference computes ----

bool has_penalties(const Sampling& s) {
  return s.repetition_penalty != 1 || s.presence_penalty != 0 || s.frequency_penalty != 0;
}

constexpr float kNever = -std::numeric_limits<float>::infinity();  // the score of what is left out

// One token's logit; `count`: how often the answer has it.
float penalised(float logit, int count, const Sampling& s) {
  const float repetition = static_cast<float>(s.repetition_penalty);
  // Both move the logit towards less likely, whatever its sign.
  logit = logit < 0 ? logit * repetition : logit / repetition;
  logit -= static_cast<float>(s.frequency_penalty) * static_cast<float>(count);
  if (count > 0) logit -= static_cast<float>(s.presence_penalty);
  return logit;
}

void apply_penalties(std::span<float> scores, const Sampling& sampling, const History& history) {
  for (const auto& [id, count] : history.counts) {
    if (id < 0 || static_cast<std::size_t>(id) >= scores.size()) {
      throw std::invalid_argument(
          "[sampling] the history has token id " + std::to_string(id) +
          ", expected 0 to vocab_size - 1 = " + std::to_string(scores.size() - 1));
    }
    scores[id] = penalised(scores[id], count, sampling);
  }
}

// The best token; of equals the one with the lowest id.
int argmax(std::span<const float> scores) {
  const int count = static_cast<int>(scores.size());
  simd::Vec best = simd::broadcast(kNever);
  int i = 0;
  for (; i + simd::kLanes <= count; i += simd::kLanes) {
    best = simd::larger(simd::load(&scores[i]), best);
  }
  float most = simd::max(best);
  for (; i < count; ++i) most = std::max(most, scores[i]);
  if (!std::isfinite(most)) {
    throw std::invalid_argument("[sampling] no token can be chosen: the largest logit is " +
                                std::to_string(most));
  }
  return static_cast<int>(std::find(scores.begin(), scores.end(), most) - scores.begin());
}

void apply_temperature(std::span<float> scores, double temperature) {
  const float divisor = static_cast<float>(temperature);
  const float best = scores[argmax(scores)];
  if (std::isfinite(best / divisor)) {
    for (float& score : scores) score /= divisor;
  } else {
    // The quotients of two different floats are further apart than exp can tell: only the best
    // stay.
    for (float& score : scores) score = score == best ? 0 : kNever;
  }
}

// The k-th best of all scores: a pool of the best so far, cut back to k as soon as it holds twice
// as many. What is below all of a full pool is passed over, which soon is nearly everything.
float kth_best(std::span<const float> scores, std::size_t k) {
  std::vector<float> pool;
  float least = kNever;
  const auto cut_back = [&] {
    std::nth_element(pool.begin(), pool.begin() + k - 1, pool.end(), std::greater<>());
    pool.resize(k);
    least = pool.back();
  };
  for (const float score : scores) {
    if (score < least) continue;
    pool.push_back(score);
    if (pool.size() == 2 * k) cut_back();
  }
  cut_back();
  return least;
}

// All that are as good as the k-th stay: of equals none is preferred.
void apply_top_k(std::span<float> scores, int k) {
  if (k == 0 || static_cast<std::size_t>(k) >= scores.size()) return;
  const float least = kth_best(scores, k);
  for (float& score : scores) score = score < least ? kNever : score;
}

// ---- weights: exp(score - best), the probabilities before they are divided by their sum ----

// Every token with a weight above 0, by ascending id; `probability` is the weight still.
Distribution weights(std::span<const float> scores) {
  const double best = scores[argmax(scores)];
  Distribution all;
  all.reserve(scores.size() - std::count(scores.begin(), scores.end(), kNever));
  for (std::size_t id = 0; id < scores.size(); ++id) {
    if (scores[id] == kNever) continue;
    const double weight = std::exp(scores[id] - best);
    if (weight > 0) all.push_back({static_cast<int>(id), weight});
  }
  return all;
}

double sum(const Distribution& all) {
  double total = 0;
  for (const Candidate& one : all) total += one.probability;
  return total;
}

// A probability with the digits it has in the reference, which decides in float32. They matter: of
// .5 .3 .15 .05, the last two together are exactly 1 - 0.8 there, and so top_p 0.8 keeps two.
float probability(const Candidate& one, double total) {
  return static_cast<float>(one.probability / total);
}

bool likelier(const Candidate& a, const Candidate& b) {
  return a.probability != b.probability ? a.probability > b.probability : a.id < b.id;
}

// The last of the likeliest that top-p keeps. A token goes when it and all below it have together
// no more than 1 - top_p. The cut is found without sorting: halve, add up the lower half, go on in
// the half that has the cut in it.
Candidate last_of_nucleus(const Distribution& all, double top_p) {
  const double total = sum(all);
  const auto most = static_cast<float>(1 - top_p);
  // Tokens below (1 - top_p) / 2n, n of them there, are in the tail in any case.
  const double share = (1 - top_p) / 2 / static_cast<double>(all.size());
  Distribution left;
  left.reserve(all.size());
  double below = 0;  // the probability of what is known to go
  for (const Candidate& one : all) {
    const float p = probability(one, total);
    if (p < share) {
      below += p;
    } else {
      left.push_back(one);
    }
  }
  auto first = left.begin(), end = left.end();  // `first` stays, `end` and what follows it goes
  while (end - first > 1) {
    const auto middle = first + (end - first) / 2;
    std::nth_element(first, middle, end, likelier);
    double tail = below;
    for (auto one = middle; one != end; ++one) tail += probability(*one, total);
    if (static_cast<float>(tail) <= most) {
      end = middle;
      below = tail;
    } else {
      first = middle;
    }
  }
  return *first;
}

void apply_top_p(Distribution& all, double top_p) {
  if (top_p == 1) return;
  const Candidate last = last_of_nucleus(all, top_p);
  std::erase_if(all, [&](const Candidate& one) { return likelier(last, one); });
}

void apply_min_p(Distribution& all, double min_p) {
  const double total = sum(all);
  const float least = static_cast<float>(min_p) * probability({0, 1.0}, total);  // 1: the best's
  std::erase_if(all, [&](const Candidate& one) { return probability(one, total) < least; });
}

}  // namespace

void check_sampling(const Sampling& s) {
  // A comparison with NaN is false. Logits are divided in float, which ends at 3.4e38.
  expect(s.temperature >= 0 && s.temperature <= 3.4e38, "temperature", s.temperature,
         "a number from 0 (greedy) to 3.4e+38");
  expect(s.top_k >= 0, "top_k", s.top_k, "a whole number from 0 (all) to 2147483647");
  expect(s.top_p > 0 && s.top_p <= 1, "top_p", s.top_p, "a number above 0, up to 1 (all)");
  expect(s.min_p >= 0 && s.min_p <= 1, "min_p", s.min_p, "a number from 0 (all) to 1");
  // Further out, logits would leave float, and of infinite ones none can be chosen.
  expect(s.repetition_penalty >= 1e-6 && s.repetition_penalty <= 1e6, "repetition_penalty",
         s.repetition_penalty, "a number from 0.000001 to 1000000 (1: none)");
  expect(std::abs(s.presence_penalty) <= 1e6, "presence_penalty", s.presence_penalty,
         "a number from -1000000 to 1000000 (0: none)");
  expect(std::abs(s.frequency_penalty) <= 1e6, "frequency_penalty", s.frequency_penalty,
         "a number from -1000000 to 1000000 (0: none)");
}

void check_sampling(const Sampling& sampling, const std::string& file) {
  try {
    check_sampling(sampling);
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(file + ": " + error.what());
  }
}

void add_prompt(History& history, std::span<const int> ids) {
  for (const int id : ids) history.counts.try_emplace(id, 0);
}

void add_answer(History& history, int id) {
  ++history.counts[id];
}

Distribution distribution(std::span<const float> logits, const Sampling& sampling,
                          const History& history) {
  check_sampling(sampling);
  const bool greedy = sampling.temperature == 0;
  if (greedy && !has_penalties(sampling)) return {{argmax(logits), 1.0}};

  std::vector<float> scores(logits.begin(), logits.end());
  if (has_penalties(sampling)) apply_penalties(scores, sampling, history);
  if (greedy) return {{argmax(scores), 1.0}};
  apply_temperature(scores, sampling.temperature);
  apply_top_k(scores, sampling.top_k);

  Distribution left = weights(scores);
  apply_top_p(left, sampling.top_p);
  apply_min_p(left, sampling.min_p);
  const double total = sum(left);
  for (Candidate& one : left) one.probability /= total;
  return left;
}

double probability(const Distribution& distribution, int id) {
  const auto place = std::lower_bound(distribution.begin(), distribution.end(), id,
                                      [](const Candidate& c, int wanted) { return c.id < wanted; });
  return place != distribution.end() && place->id == id ? place->probability : 0;
}

double uniform(std::mt19937_64& generator) {
  return static_cast<double>(generator() >> 11) * 0x1p-53;
}

int draw(const Distribution& distribution, double u) {
  double below = 0;  // where the share of the present candidate ends
  for (const Candidate& one : distribution) {
    below += one.probability;
    if (u < below) return one.id;
  }
  return distribution.back().id;  // the sum may be a rounding error below 1
}

}  // namespace qwen
