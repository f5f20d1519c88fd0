#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "qwen/json.h"
#include "qwen/sampler.h"
#include "tests/support.h"

using namespace qwen;

namespace {

constexpr int kVocabSize = 248'320;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Logits = std::vector<float>;
using Ids = std::vector<int>;

Logits logs(const std::vector<double>& probabilities) {
  Logits logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

Ids ids_of(const Distribution& all) {
  Ids ids;
  for (const Candidate& one : all) ids.push_back(one.id);
  return ids;
}

double total(const Distribution& all) {
  double sum = 0;
  for (const Candidate& one : all) sum += one.probability;
  return sum;
}

int likeliest(const Logits& logits) {
  return static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// ---- the reference: tests/data/sampling.json, made by tools/reference_sampling.py ----

const Json& reference() {
  static const Json json = read_json("sampling.json");
  return json;
}

Sampling sampling_of(const Json& json) {
  return {json["temperature"],
          json["top_k"],
          json["top_p"],
          json["min_p"],
          json["repetition_penalty"],
          json["presence_penalty"],
          json["frequency_penalty"]};
}

// The formulas of large_logits in that tool.
Logits large_logits(const std::string& name) {
  Logits logits(kVocabSize);
  for (std::uint32_t id = 0; id < logits.size(); ++id) {
    const float u = static_cast<float>((id * 2654435761u) >> 8) / 16777216.0f;
    const float square = u * u;
    if (name == "equal") logits[id] = 0;
    if (name == "steps") logits[id] = std::floor(u * 64.0f) / 4.0f;
    if (name == "one huge") logits[id] = id == 200'000 ? 1e4f : u;
    if (name == "wide") logits[id] = square * square * 24.0f;
  }
  return logits;
}

// From logits, and the tokens of prompt and answer, to what may come next.
using Distribute = std::function<Distribution(const Logits&, const Sampling&, const Ids& prompt,
                                              const Ids& answer)>;

Distribution right(const Logits& logits, const Sampling& sampling, const Ids& prompt,
                   const Ids& answer) {
  History history;
  add_prompt(history, prompt);
  for (const int id : answer) add_answer(history, id);
  return distribution(logits, sampling, history);
}

bool near(double actual, double expected, double tolerance) {
  return std::abs(actual - expected) <= tolerance * expected;
}

// Both are computed in float64 from scores that are the same float32 numbers. An exp, a division
// and the sum of 23 numbers round by 1e-16 each; 14 digits are stored.
constexpr double kTolerance = 1e-13;
// The sum of 248,320 numbers.
constexpr double kLargeTolerance = 1e-10;

// Tokens that must be the same as the reference's: all that it kept, or, where its cut went through
// equals by chance, those that are likelier than these.
std::set<int> settled(const Ids& ids, const std::vector<double>& p, bool through_equals) {
  const double least = *std::min_element(p.begin(), p.end());
  std::set<int> these;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!through_equals || p[i] > least * (1 + kTolerance)) these.insert(ids[i]);
  }
  return these;
}

std::string case_complaint(const Distribution& actual, const Json& expected) {
  const bool through_equals = expected["through_equals"];
  std::vector<double> ours, theirs = expected["probabilities"];
  for (const Candidate& one : actual) ours.push_back(one.probability);
  if (ours.size() != theirs.size()) return std::to_string(ours.size()) + " tokens are kept";
  if (settled(ids_of(actual), ours, through_equals) !=
      settled(expected["ids"], theirs, through_equals)) {
    return "other tokens are kept";
  }
  if (through_equals) {
    std::sort(ours.begin(), ours.end());
    std::sort(theirs.begin(), theirs.end());
  }
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (!near(ours[i], theirs[i], kTolerance)) return "another probability at " + std::to_string(i);
  }
  return "";
}

// What differs from the reference's cases, for the first that does; empty where none does.
std::string reference_complaint(const Distribute& distribute) {
  for (const Json& one : reference()["cases"]) {
    const Logits logits = reference()["vectors"][one["logits"].get<std::string>()];
    const auto actual =
        distribute(logits, sampling_of(one["sampling"]), one["prompt"], one["answer"]);
    const std::string found = case_complaint(actual, one);
    if (!found.empty()) return found + ": " + one.dump();
  }
  return "";
}

std::string large_complaint(const Distribution& actual, const Json& expected) {
  std::int64_t sum = 0, squares = 0;
  double entropy = 0, least = 1, most = 0;
  for (const auto& [id, p] : actual) {
    sum += id;
    squares += static_cast<std::int64_t>(id) * id;
    entropy -= p * std::log(p);
    least = std::min(least, p);
    most = std::max(most, p);
  }
  if (actual.size() != expected["count"]) return std::to_string(actual.size()) + " are kept";
  const bool same_ids = sum == expected["id_sum"] && squares == expected["id_squares"];
  if (!same_ids && !expected["through_equals"]) return "other tokens are kept";
  if (!near(least, expected["probabilities"][0], kLargeTolerance)) return "the least probability";
  if (!near(most, expected["probabilities"][1], kLargeTolerance)) return "the largest probability";
  const double bound = kLargeTolerance * std::max(1.0, std::abs(entropy));
  return std::abs(entropy - expected["entropy"].get<double>()) <= bound ? "" : "the entropy";
}

// ---- a second implementation, which sorts everything ----

float in_float32(double weight, double sum) {
  return static_cast<float>(weight / sum);
}

// top-k, top-p and min-p of logits at temperature 1.
Ids sorted_and_cut(const Logits& logits, const Sampling& s) {
  Ids ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  if (s.top_k > 0 && s.top_k < static_cast<int>(ids.size())) {
    const float least = logits[ids[s.top_k - 1]];
    std::erase_if(ids, [&](int id) { return logits[id] < least; });
  }
  const auto weight = [&](int id) { return std::exp(double{logits[id]} - logits[ids[0]]); };
  const auto sum = [&] {
    double all = 0;
    for (const int id : ids) all += weight(id);
    return all;
  };
  double whole = sum(), tail = 0;
  for (auto last = ids.end() - 1; s.top_p < 1 && last > ids.begin(); --last) {
    tail += in_float32(weight(*last), whole);
    if (static_cast<float>(tail) > static_cast<float>(1 - s.top_p)) break;
    ids.pop_back();
  }
  whole = sum();
  const float least = static_cast<float>(s.min_p) * in_float32(1, whole);
  std::erase_if(ids, [&](int id) { return in_float32(weight(id), whole) < least; });
  std::sort(ids.begin(), ids.end());
  return ids;
}

// Numbers from a generator of its own: the same on every machine.
Logits random_logits(std::mt19937_64& generator, int count, double spread, int levels) {
  Logits logits;
  for (int i = 0; i < count; ++i) {
    const double u = uniform(generator);
    logits.push_back(
        static_cast<float>(spread * (levels > 0 ? std::floor(u * levels) / levels : u)));
  }
  return logits;
}

}  // namespace

// ---- by hand ----

TEST_CASE("sampler: greedy takes the likeliest, of equals the lowest id, at any length") {
  for (const int count : {1, 2, 3, 15, 16, 17, 33, 100}) {
    Logits logits(count, -1.0f);
    for (int best = count - 1; best >= 0; --best) {
      logits[best] = 2;  // with every step one more that is as good
      const Distribution all = distribution(logits, {}, {});
      REQUIRE(all.size() == 1);
      CHECK(all[0].id == best);
      CHECK(all[0].probability == 1);
    }
  }
}

TEST_CASE("sampler: the temperature divides the logits") {
  const Logits logits = logs({.64, .32, .04});
  const auto p = distribution(logits, {.temperature = 0.5}, {});  // squares: .4096 .1024 .0016
  REQUIRE(p.size() == 3);
  CHECK(p[0].probability == doctest::Approx(.4096 / .5136).epsilon(1e-6));
  CHECK(p[1].probability == doctest::Approx(.1024 / .5136).epsilon(1e-6));
  CHECK(p[2].probability == doctest::Approx(.0016 / .5136).epsilon(1e-6));
}

TEST_CASE("sampler: the smallest temperatures take greedy's token, whatever the logits") {
  for (const Logits& logits : {Logits{1, 3, 2}, Logits{-1, -3, -2}, Logits{0, -1e-3f, -5},
                               Logits{1e-3f, 0, -1e-3f}, Logits{3e38f, -3e38f, 1}}) {
    for (const double temperature : {1e-8, 1e-38, 1e-45, 1e-300}) {
      const auto all = distribution(logits, {.temperature = temperature}, {});
      CAPTURE(temperature);
      REQUIRE(ids_of(all) == Ids{likeliest(logits)});
      CHECK(all[0].probability == 1);
    }
  }
  CHECK(ids_of(distribution(Logits{1, 7, 7}, {.temperature = 1e-45}, {})) == Ids{1, 2});
}

TEST_CASE("sampler: a huge temperature makes all tokens equal") {
  for (const auto& one : distribution(Logits{-5, 0, 9}, {.temperature = 3e38}, {})) {
    CHECK(one.probability == doctest::Approx(1.0 / 3));
  }
}

TEST_CASE("sampler: of [.5 .3 .15 .05], top_p 0.6 and 0.8 keep two, 0.85 three, 1e-8 one") {
  const Logits logits = logs({.15, .5, .05, .3});
  const auto kept = [&](double top_p) {
    return ids_of(distribution(logits, {.temperature = 1, .top_p = top_p}, {}));
  };
  CHECK(kept(1) == Ids{0, 1, 2, 3});
  CHECK(kept(0.85) == Ids{0, 1, 3});
  CHECK(kept(0.8) == Ids{1, 3});
  CHECK(kept(0.6) == Ids{1, 3});
  CHECK(kept(1e-8) == Ids{1});
}

TEST_CASE("sampler: top_k keeps all equals of the k-th; above the vocabulary it is off") {
  const Logits logits = {1, 5, 3, 3, 2, 3};
  const auto kept = [&](int k) {
    return ids_of(distribution(logits, {.temperature = 1, .top_k = k}, {}));
  };
  CHECK(kept(1) == Ids{1});
  CHECK(kept(2) == Ids{1, 2, 3, 5});
  CHECK(kept(4) == Ids{1, 2, 3, 5});
  CHECK(kept(5) == Ids{1, 2, 3, 4, 5});
  for (const int k : {0, 6, 7, std::numeric_limits<int>::max()}) CHECK(kept(k).size() == 6);
}

TEST_CASE("sampler: min_p is a share of the likeliest, after top-p") {
  const Logits logits = logs({.5, .3, .15, .05});
  const auto kept = [&](double min_p, double top_p) {
    return ids_of(distribution(logits, {.temperature = 1, .top_p = top_p, .min_p = min_p}, {}));
  };
  CHECK(kept(0.25, 1) == Ids{0, 1, 2});
  CHECK(kept(0.35, 1) == Ids{0, 1});
  CHECK(kept(1, 1) == Ids{0});
  CHECK(kept(0.25, 0.7) == Ids{0, 1});
}

TEST_CASE("sampler: penalties by hand") {
  const Logits logits = {4, -4, 4, -4, 1};
  History history;
  add_prompt(history, Ids{0, 1});
  for (const int id : {2, 3, 3}) add_answer(history, id);
  // 4 / 2; -4 * 2; 4 / 2 - 1 * .5 - .25; -4 * 2 - 2 * .5 - .25; untouched
  const std::vector<double> scores = {2, -8, 1.25, -9.25, 1};
  const auto all = distribution(
      logits,
      {.temperature = 1, .repetition_penalty = 2, .presence_penalty = .25, .frequency_penalty = .5},
      history);
  for (int id = 0; id < 5; ++id) {
    CHECK(std::log(all[id].probability / all[0].probability) ==
          doctest::Approx(scores[id] - scores[0]).epsilon(1e-12));
  }
  // Greedy has them too: 0 and 2 would be best without.
  CHECK(ids_of(distribution(logits, {.repetition_penalty = 8}, history)) == Ids{4});
  CHECK(ids_of(distribution(logits, {.repetition_penalty = 2}, history)) == Ids{0});  // not 2, too
}

TEST_CASE("sampler: the largest penalties leave a choice") {
  History history;
  add_prompt(history, Ids{0, 1});
  for (int i = 0; i < 1000; ++i) add_answer(history, 2);
  const Logits logits = {200, -100, 300, 0, -300};
  const auto best = [&](const Sampling& sampling) {
    return ids_of(distribution(logits, sampling, history)).front();
  };
  CHECK(best({.repetition_penalty = 1e-6}) == 2);
  CHECK(best({.repetition_penalty = 1e6, .presence_penalty = 1e6, .frequency_penalty = 1e6}) == 0);
  CHECK(best({.presence_penalty = -1e6, .frequency_penalty = -1e6}) == 2);
}

TEST_CASE("sampler: a token of the prompt that comes again counts as the answer's") {
  History history;
  add_prompt(history, Ids{1, 1, 1});
  CHECK(history.counts.at(1) == 0);
  add_answer(history, 1);
  add_prompt(history, Ids{1});
  CHECK(history.counts.at(1) == 1);
}

TEST_CASE("sampler: tokens that can never come are left out") {
  const float never = -std::numeric_limits<float>::infinity();
  CHECK(ids_of(distribution(Logits{never, 1, never, 0}, {.temperature = 1}, {})) == Ids{1, 3});
  CHECK(ids_of(distribution(Logits{0, 1e4f, 0}, {.temperature = 1}, {})) == Ids{1});
  // Fewer can come than top-k would keep.
  CHECK(ids_of(distribution(Logits{never, -1, never, -2}, {.temperature = 1, .top_k = 3}, {})) ==
        Ids{1, 3});
}

// ---- against transformers ----

TEST_CASE("sampler: the same tokens and probabilities as transformers' processors") {
  CHECK(reference()["cases"].size() > 300);
  CHECK(reference_complaint(right) == "");
}

TEST_CASE("sampler: the same for a vocabulary of 248,320") {
  std::string name;
  Logits logits;
  for (const Json& one : reference()["large"]) {
    if (one["logits"] != name) logits = large_logits(name = one["logits"]);
    const auto actual = right(logits, sampling_of(one["sampling"]), one["prompt"], one["answer"]);
    const std::string found = large_complaint(actual, one);
    CHECK_MESSAGE(found.empty(), found << ": " << one.dump());
  }
}

TEST_CASE("planted bugs: each way to get the order or the history wrong is noticed") {
  const std::map<std::string, Distribute> bugs = {
      {"penalties on the last token only",
       [](const Logits& logits, const Sampling& s, const Ids&, const Ids& answer) {
         return right(logits, s, {}, {answer.back()});
       }},
      {"the prompt counts as answer",
       [](const Logits& logits, const Sampling& s, Ids prompt, const Ids& answer) {
         prompt.insert(prompt.end(), answer.begin(), answer.end());
         return right(logits, s, {}, prompt);
       }},
      {"the prompt does not count", [](const Logits& logits, const Sampling& s, const Ids&,
                                       const Ids& answer) { return right(logits, s, {}, answer); }},
      {"every token counts once",
       [](const Logits& logits, const Sampling& s, const Ids& prompt, const Ids& answer) {
         const std::set<int> once(answer.begin(), answer.end());
         return right(logits, s, prompt, {once.begin(), once.end()});
       }},
      {"the temperature before the penalties",
       [](Logits logits, Sampling s, const Ids& prompt, const Ids& answer) {
         for (float& logit : logits) logit /= static_cast<float>(s.temperature);
         s.temperature = 1;
         return right(logits, s, prompt, answer);
       }},
      {"min-p before the temperature",
       [](Logits logits, Sampling s, const Ids& prompt, const Ids& answer) {
         const Ids kept = sorted_and_cut(logits, {.min_p = s.min_p});
         for (int id = 0; id < static_cast<int>(logits.size()); ++id) {
           if (!std::binary_search(kept.begin(), kept.end(), id)) logits[id] = -1e9f;
         }
         s.min_p = 0;
         return right(logits, s, prompt, answer);
       }},
  };
  for (const auto& bug : bugs) CHECK_MESSAGE(!reference_complaint(bug.second).empty(), bug.first);
}

// ---- properties ----

TEST_CASE("sampler: choosing without sorting keeps what sorting keeps, ties included") {
  std::mt19937_64 generator(3);
  for (int round = 0; round < 2000; ++round) {
    const int count = 1 + static_cast<int>(uniform(generator) * 300);
    const int levels = round % 3 == 0 ? 0 : 1 + static_cast<int>(uniform(generator) * 12);
    const Logits logits = random_logits(generator, count, 12 * uniform(generator), levels);
    const Sampling sampling{
        .temperature = 1,
        .top_k = round % 2 == 0 ? 0 : 1 + static_cast<int>(uniform(generator) * 320),
        .top_p = round % 5 == 0 ? 1 : 1 - uniform(generator),
        .min_p = round % 4 == 0 ? uniform(generator) : 0};
    const Distribution all = distribution(logits, sampling, {});
    CAPTURE(round);
    REQUIRE(ids_of(all) == sorted_and_cut(logits, sampling));
    REQUIRE(std::abs(total(all) - 1) < 1e-12);
  }
}

TEST_CASE("sampler: 248,320 equal logits can all be drawn") {
  const Distribution all = distribution(Logits(kVocabSize, 3.5f), {.temperature = 1}, {});
  REQUIRE(all.size() == kVocabSize);
  CHECK(draw(all, 0) == 0);
  CHECK(draw(all, 1 - 0x1p-53) == kVocabSize - 1);
  for (int id = 0; id < kVocabSize; id += 1009) CHECK(draw(all, (id + 0.5) / kVocabSize) == id);
}

TEST_CASE("sampler: draw gives each token its share of [0, 1)") {
  const Distribution all = {{4, .25}, {7, .5}, {9, .25 - 1e-12}};
  CHECK(draw(all, 0) == 4);
  CHECK(draw(all, std::nextafter(.25, 0)) == 4);
  CHECK(draw(all, .25) == 7);
  CHECK(draw(all, std::nextafter(.75, 0)) == 7);
  CHECK(draw(all, .75) == 9);
  CHECK(draw(all, 1 - 0x1p-53) == 9);  // the shares end a little below
}

TEST_CASE("sampler: 100,000 draws have the distribution's frequencies") {
  std::mt19937_64 generator(11);
  const Logits logits = random_logits(generator, 20, 4, 0);
  const Distribution all = distribution(logits, {.temperature = .7, .top_k = 9, .top_p = .95}, {});
  std::map<int, int> drawn;
  constexpr int kDraws = 100'000;
  for (int i = 0; i < kDraws; ++i) ++drawn[draw(all, uniform(generator))];
  double chi_square = 0;
  for (const auto& [id, p] : all) chi_square += std::pow(drawn[id] - p * kDraws, 2) / (p * kDraws);
  CHECK(drawn.size() == all.size());
  // At most 8 degrees of freedom: above 26.1 in one run of a thousand. The seed is fixed.
  REQUIRE(all.size() <= 9);
  CHECK(chi_square < 26.1);
}

TEST_CASE("sampler: uniform is the top 53 bits of a generator that the standard fixes") {
  std::mt19937_64 generator;
  generator.discard(9999);
  CHECK(uniform(generator) == static_cast<double>(9981545732273789042u >> 11) * 0x1p-53);
  std::mt19937_64 again(5);
  double least = 1, most = 0;
  for (int i = 0; i < 10'000; ++i) {
    const double u = uniform(again);
    least = std::min(least, u);
    most = std::max(most, u);
  }
  CHECK(least >= 0);
  CHECK(most < 1);
}

// ---- errors ----

TEST_CASE("sampler: what no distribution follows from is refused, by name") {
  const auto refused = [](const Sampling& sampling, const std::string& part) {
    check_throws_with([&] { check_sampling(sampling); }, "[sampling] " + part);
    check_throws_with([&] { distribution(Logits{1, 2}, sampling, {}); }, "[sampling] " + part);
  };
  for (const double x : {kNan, kInfinity, -kInfinity, 1e39, -1e39}) {
    refused({.temperature = x}, "temperature is");
    refused({.top_p = x}, "top_p is");
    refused({.min_p = x}, "min_p is");
    refused({.repetition_penalty = x}, "repetition_penalty is");
    refused({.presence_penalty = x}, "presence_penalty is");
    refused({.frequency_penalty = x}, "frequency_penalty is");
  }
  refused({.temperature = -0.5}, "temperature is -0.5, expected a number from 0 (greedy)");
  refused({.temperature = kNan}, "temperature is nan, expected a number from 0 (greedy)");
  refused({.top_k = -1}, "top_k is -1, expected a whole number from 0 (all)");
  refused({.top_p = 0}, "top_p is 0, expected a number above 0, up to 1 (all)");
  refused({.top_p = 1.5}, "top_p is 1.5, expected a number above 0, up to 1 (all)");
  refused({.min_p = -0.1}, "min_p is -0.1, expected a number from 0 (all) to 1");
  refused({.repetition_penalty = 0},
          "repetition_penalty is 0, expected a number from 0.000001 to 1000000 (1: none)");
  refused({.repetition_penalty = 1.5e6}, "repetition_penalty is 1500000, expected a number from");
  refused({.presence_penalty = -2e6},
          "presence_penalty is -2e+06, expected a number from -1000000 to 1000000 (0: none)");
  refused({.frequency_penalty = 2e6}, "frequency_penalty is 2e+06, expected a number from");
  refused({.top_p = 1.0000001}, "top_p is 1.0000001, expected");
}

TEST_CASE("sampler: logits without a finite best are refused") {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Logits& logits : {Logits{}, Logits{-infinity, -infinity}, Logits{1, infinity}}) {
    for (const double temperature : {0.0, 1.0}) {
      check_throws_with([&] { distribution(logits, {.temperature = temperature}, {}); },
                        "[sampling] no token can be chosen: the largest logit is");
    }
  }
}

TEST_CASE("sampler: a history of other tokens than the vocabulary's is refused") {
  for (const int id : {-1, 2}) {
    History history;
    add_answer(history, id);
    check_throws_with(
        [&] {
          distribution(Logits{1, 2}, {.presence_penalty = 1}, history);
        },
        "[sampling] the history has token id " + std::to_string(id) +
            ", expected 0 to vocab_size - 1 = 1");
  }
}
