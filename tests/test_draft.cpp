// Drafting changes how fast a text comes, and nothing else: not the text, not the state it leaves,
// not the distribution that tokens are drawn from.
#include <algorithm>
#include <array>
#include <climits>
#include <cmath>
#include <map>

#include "qwen/draft.h"
#include "qwen/json.h"
#include "qwen/random_model.h"
#include "qwen/rollback.h"
#include "qwen/save.h"
#include "qwen/speculate.h"
#include "qwen/tables.h"
#include "tests/comparisons.h"

using namespace qwen;

namespace {

// The rest of the file runs all code that these run; they are many texts, or many samples.
const doctest::test_suite in_long("long");

// ---- models with an MTP layer ----

struct Drafted {
  Model model;
  Mtp mtp;
};

Drafted load_drafted(const std::string& path) {
  Drafted both{load_model(path), {}};
  both.mtp = load_mtp(both.model.config, open_checkpoint(path));
  return both;
}

Drafted random_drafted(const Config& config, DType dtype) {
  const TempDir folder;
  const std::string path = folder.path() + "/model";
  save_checkpoint(config, random_model(config, dtype, 14).tensors, path);
  return load_drafted(path);
}

// One layer of each kind, and three DeltaNet layers with grouped heads.
const std::vector<Drafted>& models() {
  static const std::vector<Drafted> all = [] {
    std::vector<Drafted> loaded;
    loaded.push_back(load_drafted("checkpoints/wrapper"));
    loaded.push_back(random_drafted(named_shape("tiny"), DType::BF16));
    return loaded;
  }();
  return all;
}

std::vector<int> random_ids(int count, int vocab_size, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<int> ids(count);
  for (int& id : ids) id = static_cast<int>(uniform(generator) * vocab_size);
  return ids;
}

// Guesses that are right for a random number of tokens, then wrong: `text` is what plain decoding
// writes after a prompt of which every row is shown.
Drafter prophet(const std::vector<int>& text, int prompt, std::uint64_t seed) {
  return [=, known = 0, chance = std::mt19937_64(seed)](const Tensor2&,
                                                        std::span<const int> next_ids, int count,
                                                        const History&, std::mt19937_64&) mutable {
    known += static_cast<int>(next_ids.size());
    const int written = known - (prompt - 1);  // tokens of the text that are known
    const int right = static_cast<int>(uniform(chance) * (count + 1));
    std::vector<Draft> drafts;
    for (int i = 0; i < count; ++i) {
      const int place = written + i;
      const int truth = place < static_cast<int>(text.size()) ? text[place] : 0;
      const int id = i < right ? truth : truth == 0 ? 1 : truth - 1;
      drafts.push_back({id, {{id, 1.0}}});
    }
    return drafts;
  };
}

// ---- the same answer, and the same sequence after it ----

struct Outcome {
  Answer answer;
  Sequence sequence;
};

Outcome plainly(const Model& model, std::span<const int> prompt, const Sampling& sampling, int most,
                const OnToken& on_token = {}) {
  Outcome outcome{{}, empty_sequence(model.config)};
  outcome.answer = generate(model, ops(), outcome.sequence, prompt, sampling, most, on_token);
  return outcome;
}

Outcome drafting(const Model& model, const Drafter& drafter, int count, std::span<const int> prompt,
                 const Sampling& sampling, int most, DraftStats& stats,
                 const OnToken& on_token = {}) {
  Outcome outcome{{}, empty_sequence(model.config)};
  outcome.answer = speculate(model, ops(), drafter, count, Drafting::always, outcome.sequence,
                             prompt, sampling, most, on_token, stats);
  return outcome;
}

std::string outcome_difference(const Outcome& actual, const Outcome& expected) {
  if (actual.answer.ids != expected.answer.ids) return "another text";
  if (actual.answer.ending != expected.answer.ending) return "another ending";
  if (actual.answer.end_token != expected.answer.end_token) return "another end token";
  if (actual.sequence.ids != expected.sequence.ids) return "other tokens read";
  return state_difference(actual.sequence.state, expected.sequence.state);
}

void check_same(const Outcome& actual, const Outcome& expected) {
  const std::string found = outcome_difference(actual, expected);
  CHECK_MESSAGE(found.empty(), found);
}

// ---- going back ----

using RollBack = std::function<void(const Ops&, const Record&, State&, int position)>;

// Reads 9 tokens, then 1 to 6 more in one recorded call, and goes back by every number of rows;
// then compares with a state that never read them, and with what it reads next.
std::string rollback_complaint(const Model& model, const Ops& table, std::span<const int> ids,
                               const RollBack& go_back) {
  constexpr int kBefore = 9;
  for (int rows = 1; rows <= 6; ++rows) {
    for (int kept = 1; kept <= rows; ++kept) {
      State state = empty_state(model.config), fresh = empty_state(model.config);
      Record record;
      forward(model, table, ids.first(kBefore), state);
      forward(model, recording_ops(table, record), ids.subspan(kBefore, rows), state);
      go_back(table, record, state, kBefore + kept);
      forward(model, table, ids.first(kBefore + kept), fresh);
      std::string found = state_difference(state, fresh);
      if (found.empty()) {
        const std::span<const int> next = ids.subspan(100, 5);
        found = bit_difference("logits", forward(model, table, next, state),
                               forward(model, table, next, fresh));
      }
      if (found.empty()) continue;
      return std::to_string(kept) + " of " + std::to_string(rows) + " rows kept: " + found;
    }
  }
  return "";
}

// Goes back, but leaves `part` of every DeltaNet layer as it was before.
template <class Part>
void roll_back_without(Part DeltaState::*part, const Ops& table, const Record& record, State& state,
                       int position) {
  const State before = state;
  roll_back(table, record, state, position);
  for (std::size_t i = 0; i < state.layers.size(); ++i) {
    if (auto* delta = std::get_if<DeltaState>(&state.layers[i])) {
      delta->*part = std::get<DeltaState>(before.layers[i]).*part;
    }
  }
}

}  // namespace

// ---- rollback ----

TEST_CASE("roll_back: a state that went back is a state that never went there, bit for bit") {
  for (const std::string& name : small_models()) {
    const SmallModel small = small_model(name);
    for (const Ops& table : {fast_ops(), plain_ops()}) {
      const std::string found = rollback_complaint(small.model, table, small.ids, roll_back);
      CHECK_MESSAGE(found.empty(), name << ": " << found);
    }
  }
}

TEST_CASE("roll_back: only behind the first row of the recorded call") {
  const SmallModel small = small_model("tiny");
  State state = empty_state(small.model.config);
  Record record;
  const Ops recording = recording_ops(ops(), record);
  forward(small.model, ops(), std::span(small.ids).first(5), state);
  forward(small.model, recording, std::span(small.ids).subspan(5, 3), state);
  CHECK(record.layers.size() == 3);
  for (const int position : {9, 5, -1}) {
    check_throws_with([&] { roll_back(ops(), record, state, position); },
                      "[roll_back] position " + std::to_string(position) +
                          " is not behind the first row of the call that ended at 8");
  }
  roll_back(ops(), record, state, 6);
  CHECK(state.position == 6);
}

TEST_CASE("planted bugs: going back without the convolution's tail is noticed") {
  const SmallModel small = small_model("tiny");
  const RollBack wrong = [](const Ops& table, const Record& record, State& state, int position) {
    roll_back_without(&DeltaState::tail, table, record, state, position);
  };
  CHECK(rollback_complaint(small.model, ops(), small.ids, wrong) != "");
}

TEST_CASE("planted bugs: going back without S is noticed") {
  const SmallModel small = small_model("tiny");
  const RollBack wrong = [](const Ops& table, const Record& record, State& state, int position) {
    roll_back_without(&DeltaState::S, table, record, state, position);
  };
  CHECK(rollback_complaint(small.model, ops(), small.ids, wrong) != "");
}

TEST_CASE("planted bugs: going back without cutting the KV cache is noticed") {
  const SmallModel small = small_model("tiny");
  const RollBack wrong = [](const Ops& table, const Record& record, State& state, int position) {
    const int length = state.position;
    roll_back(table, record, state, position);
    for (LayerState& layer : state.layers) {
      if (auto* kv = std::get_if<KVCache>(&layer)) kv->length = length;
    }
  };
  CHECK(rollback_complaint(small.model, ops(), small.ids, wrong) != "");
}

TEST_CASE("planted bugs: a tail that is right for up to three accepted rows is noticed") {
  // The tail before the call, shifted by the rows that stay: four of them leave nothing of it.
  const SmallModel small = small_model("tiny");
  const RollBack wrong = [](const Ops& table, const Record& record, State& state, int position) {
    const int kept = dim(record.layers[0].in, 0) - (state.position - position);
    roll_back(table, record, state, position);
    if (kept < 4) return;
    std::size_t next = 0;
    for (LayerState& layer : state.layers) {
      auto* delta = std::get_if<DeltaState>(&layer);
      if (delta == nullptr) continue;
      const DeltaRecord& own = record.layers[next++];
      delta->tail = own.tail;
      move_tail(slice(own.in, 0, 3), delta->tail);
    }
  };
  const std::string found = rollback_complaint(small.model, ops(), small.ids, wrong);
  CHECK_MESSAGE(found.starts_with("4 of 4 rows kept"), found);
}

// ---- the verdict ----

TEST_CASE("excess: what p has more than q, in proportion") {
  const Distribution p = {{2, 0.5}, {5, 0.3}, {7, 0.2}}, q = {{2, 0.1}, {4, 0.6}, {5, 0.3}};
  const Distribution rest = excess(p, q);
  REQUIRE(rest.size() == 2);
  CHECK(rest[0].id == 2);
  CHECK(rest[0].probability == doctest::Approx(0.4 / 0.6));
  CHECK(rest[1].id == 7);
  CHECK(rest[1].probability == doctest::Approx(0.2 / 0.6));
  CHECK(excess(p, p).size() == 3);  // nothing is missing: p itself
}

TEST_CASE("verify: greedy drafts are right up to the first wrong one") {
  Tensor2 logits = zeros(3, 6);
  logits(0, 4) = logits(1, 2) = logits(2, 5) = 1;
  const auto draft = [](int id) { return Draft{id, {{id, 1.0}}}; };
  std::mt19937_64 generator;
  const auto verdict = [&](int first, int second) {
    History history;
    return verify(logits, std::vector<Draft>{draft(first), draft(second)}, {}, history, generator);
  };
  CHECK(verdict(4, 2) == std::vector<int>{4, 2, 5});
  CHECK(verdict(4, 3) == std::vector<int>{4, 2});
  CHECK(verdict(1, 2) == std::vector<int>{4});
  History history;
  CHECK(verify(slice(logits, 2, 1), {}, {}, history, generator) == std::vector<int>{5});
  CHECK(history.counts.at(5) == 1);
  check_throws_with([&] { verify(logits, std::vector<Draft>{draft(1)}, {}, history, generator); },
                    "[verify] logits of 3 rows, expected one more than the 1 drafts");
}

// ---- the MTP layer as a drafter ----

TEST_CASE("mtp_drafter: earlier guesses leave no trace in later ones") {
  for (const Drafted& at : models()) {
    constexpr int kRows = 90;
    const std::vector<int> ids = random_ids(kRows + 1, at.model.config.vocab_size, 6);
    State state = empty_state(at.model.config);
    const Share<State> alone{&state, kRows};
    const Tensor2 hidden = hidden_states(at.model, ops(), std::span(ids).first(kRows), {&alone, 1});
    const Sampling sampling{.temperature = 0.9};
    const Drafter once = mtp_drafter(at.model, ops(), at.mtp, sampling);
    const Drafter often = mtp_drafter(at.model, ops(), at.mtp, sampling);
    int first = 0;
    const auto show = [&](const Drafter& drafter, int rows, int count) {
      std::mt19937_64 generator(5);
      const auto next_ids = std::span(ids).subspan(first + 1, rows);
      first += rows;
      return drafter(slice(hidden, first - rows, rows), next_ids, count, {}, generator);
    };
    // With guesses and without, by one row and by several; 70 single rows that wait.
    CHECK(show(often, 9, 3).size() == 3);
    CHECK(show(often, 1, 4).size() == 4);
    CHECK(show(often, 4, 0).empty());
    for (int i = 0; i < 70; ++i) CHECK(show(often, 1, 0).empty());
    CHECK(show(often, 2, 1).size() == 1);
    const std::vector<Draft> drafts = show(often, kRows - first, 4);
    first = 0;
    const std::vector<Draft> expected = show(once, kRows, 4);
    REQUIRE(drafts.size() == expected.size());
    for (std::size_t i = 0; i < drafts.size(); ++i) {
      CHECK(drafts[i].id == expected[i].id);
      REQUIRE(drafts[i].from.size() == expected[i].from.size());
      for (std::size_t n = 0; n < expected[i].from.size(); ++n) {
        CHECK(drafts[i].from[n].probability == expected[i].from[n].probability);
      }
    }
  }
}

// ---- greedy text ----

TEST_CASE("speculate: 200 greedy texts with 1 to 4 drafts are those of plain decoding" * in_long) {
  for (const Drafted& at : models()) {
    for (int n = 0; n < 100; ++n) {
      const std::vector<int> prompt = random_ids(1 + n % 20, at.model.config.vocab_size, n);
      const Outcome plain = plainly(at.model, prompt, {}, 24);
      for (int count = 0; count <= 4; ++count) {
        CAPTURE(n);
        CAPTURE(count);
        const Drafter drafter = mtp_drafter(at.model, ops(), at.mtp, {});
        DraftStats stats;
        check_same(drafting(at.model, drafter, count, prompt, {}, 24, stats), plain);
      }
    }
  }
}

// Held-out questions to the model in the box (tools/eval_tiny.py --save), where it is there.
const char* const kHeldOut = "tiny_held_out.json";

TEST_CASE("speculate: 200 answers of the trained model with 1 to 4 drafts are those without" *
          in_long * doctest::skip(!std::filesystem::exists(kHeldOut))) {
  const Drafted at = load_drafted("../../models/tiny");
  const Json documents = read_json(kHeldOut)["documents"];
  std::map<int, DraftStats> all, dialogues;  // by drafts a round
  const std::size_t every = std::max<std::size_t>(1, documents.size() / 200);
  for (std::size_t n = 0; n < documents.size(); n += every) {
    const std::vector<int> prompt = documents[n]["prompt"];
    const Outcome plain = plainly(at.model, prompt, {}, 80);
    for (int count = 1; count <= 4; ++count) {
      DraftStats& stats = documents[n]["kind"] == "dialogue" ? dialogues[count] : all[count];
      check_same(drafting(at.model, mtp_drafter(at.model, ops(), at.mtp, {}), count, prompt, {}, 80,
                          stats),
                 plain);
    }
  }
  for (int i = 0; i <= 4; ++i) CHECK_MESSAGE(all[4].rounds[i] > 0, i << " of 4");
  CHECK(mean_accepted(dialogues[1]) >= 0.75);
}

TEST_CASE("speculate: the same where every number of drafts is accepted") {
  for (const Drafted& at : models()) {
    for (int count = 1; count <= 6; ++count) {
      DraftStats stats;  // of all texts
      for (int n = 0; n < 10; ++n) {
        const std::vector<int> prompt = random_ids(1 + n, at.model.config.vocab_size, 50 + n);
        const Outcome plain = plainly(at.model, prompt, {}, 60);
        check_same(
            drafting(at.model, prophet(plain.answer.ids, n + 1, n), count, prompt, {}, 60, stats),
            plain);
      }
      for (int i = 0; i <= count; ++i) CHECK_MESSAGE(stats.rounds[i] > 0, i << " of " << count);
    }
  }
}

TEST_CASE("speculate: the drafter is shown every row of the text once, with its true state") {
  for (const Drafted& at : models()) {
    const std::vector<int> prompt = random_ids(600, at.model.config.vocab_size, 8);  // two pieces
    Model longer = at.model;
    longer.config.max_position_embeddings = 4096;
    const Outcome plain = plainly(longer, prompt, {}, 40);
    std::vector<float> states;
    std::vector<int> tokens;
    const Drafter drafter = [&, guess = prophet(plain.answer.ids, 600, 3)](
                                const Tensor2& hidden, std::span<const int> next_ids, int count,
                                const History& history, std::mt19937_64& generator) {
      states.insert(states.end(), hidden.begin(), hidden.end());
      tokens.insert(tokens.end(), next_ids.begin(), next_ids.end());
      return guess(hidden, next_ids, count, history, generator);
    };
    DraftStats stats;
    check_same(drafting(longer, drafter, 4, prompt, {}, 40, stats), plain);
    // The rows of the last round have not been shown any more.
    const int shown = static_cast<int>(tokens.size());
    CHECK(shown > 630);
    std::vector<int> text = prompt;
    text.insert(text.end(), plain.answer.ids.begin(), plain.answer.ids.end());
    CHECK(tokens == std::vector<int>(text.begin() + 1, text.begin() + 1 + shown));
    State state = empty_state(longer.config);
    const Share<State> alone{&state, shown};
    const Tensor2 expected =
        hidden_states(longer, ops(), std::span(text).first(shown), {&alone, 1});
    REQUIRE(states.size() == expected.size());
    CHECK(std::equal(states.begin(), states.end(), expected.begin()));
  }
}

TEST_CASE("speculate: an answer ends within a round as it does token by token") {
  Drafted at = models()[0];
  const std::vector<int> prompt = random_ids(7, at.model.config.vocab_size, 3);
  const std::vector<int> text = plainly(at.model, prompt, {}, 30).answer.ids;
  REQUIRE(text.size() == 30);
  for (int place = 0; place < 12; ++place) {
    CAPTURE(place);
    const auto compare = [&](const Model& model, int most, const OnToken& on_token) {
      const Outcome plain = plainly(model, prompt, {}, most, on_token);
      for (const int count : {1, 4}) {
        DraftStats stats;
        // All drafts are right: the end falls on every place of a round.
        const Drafter knows = [&, known = 0](const Tensor2&, std::span<const int> next_ids, int k,
                                             const History&, std::mt19937_64&) mutable {
          known += static_cast<int>(next_ids.size());
          std::vector<Draft> drafts;
          for (int i = 0; i < k; ++i) {
            const int id = text[known - 6 + i];
            drafts.push_back({id, {{id, 1.0}}});
          }
          return drafts;
        };
        check_same(drafting(model, knows, count, prompt, {}, most, stats, on_token), plain);
      }
      return plain.answer;
    };
    Model ending = at.model;
    ending.config.eos_token_id = {text[place]};
    const Answer ended = compare(ending, 20, {});
    CHECK(ended.ending == Ending::end_token);
    CHECK(ended.end_token == text[place]);
    int seen = 0;
    const OnToken stop = [&](int) { return ++seen % (place + 1) != 0; };
    CHECK(compare(at.model, 20, stop).ending == Ending::stopped);
    CHECK(compare(at.model, place, {}).ending == Ending::max_tokens);
    Model narrow = at.model;
    narrow.config.max_position_embeddings = 7 + place;
    CHECK(compare(narrow, 20, {}).ending == Ending::context);
  }
}

TEST_CASE("speculate: more drafts than an answer has tokens are as many as have room") {
  const Drafted& at = models()[0];
  const std::vector<int> prompt = random_ids(7, at.model.config.vocab_size, 3);
  const Outcome plain = plainly(at.model, prompt, {}, 9);
  for (const int count : {9, 100, INT_MAX}) {
    DraftStats stats;
    check_same(
        drafting(at.model, mtp_drafter(at.model, ops(), at.mtp, {}), count, prompt, {}, 9, stats),
        plain);
    CHECK(stats.rounds.size() == 10);
  }
}

TEST_CASE("speculate: a sequence goes on, answer after answer") {
  const Drafted& at = models()[1];
  Sequence plain = empty_sequence(at.model.config), drafted = plain;
  for (int turn = 0; turn < 3; ++turn) {
    const std::vector<int> prompt = random_ids(5 + 600 * turn, at.model.config.vocab_size, turn);
    DraftStats stats;
    const Answer expected = generate(at.model, ops(), plain, prompt, {}, 20, {});
    const Answer answer = speculate(at.model, ops(), mtp_drafter(at.model, ops(), at.mtp, {}), 3,
                                    Drafting::always, drafted, prompt, {}, 20, {}, stats);
    CHECK(answer.ids == expected.ids);
    CHECK(state_difference(drafted.state, plain.state) == "");
  }
}

TEST_CASE("speculate: with penalties, too, the text is that of plain decoding") {
  Sampling penalties;
  penalties.repetition_penalty = 1.3;
  penalties.presence_penalty = 0.4;
  penalties.frequency_penalty = 0.7;
  for (const Drafted& at : models()) {
    for (int n = 0; n < 10; ++n) {
      const std::vector<int> prompt = random_ids(5, at.model.config.vocab_size, 70 + n);
      const Outcome plain = plainly(at.model, prompt, penalties, 40);
      for (int count = 0; count <= 4; ++count) {
        DraftStats stats;
        check_same(drafting(at.model, mtp_drafter(at.model, ops(), at.mtp, penalties), count,
                            prompt, penalties, 40, stats),
                   plain);
        check_same(drafting(at.model, prophet(plain.answer.ids, 5, n), count, prompt, penalties, 40,
                            stats),
                   plain);
      }
    }
  }
}

TEST_CASE("planted bugs: penalties that see only a round's first token are noticed") {
  Sampling penalties;
  penalties.frequency_penalty = 2;
  Tensor2 logits = zeros(3, 5);
  for (int t = 0; t < 3; ++t) {
    logits(t, 3) = 3;
    logits(t, 1) = 2;
  }
  const std::vector<Draft> drafts = {{3, {{3, 1.0}}}, {3, {{3, 1.0}}}};
  std::mt19937_64 generator;
  History history;
  CHECK(verify(logits, drafts, penalties, history, generator) == std::vector<int>{3, 1});
  // Every row on its own, with the history as it was before the round.
  std::vector<int> wrong;
  for (int t = 0; t < 3; ++t) {
    History before;
    wrong.push_back(verify(slice(logits, t, 1), {}, penalties, before, generator)[0]);
  }
  CHECK(wrong == std::vector<int>{3, 3, 3});
}

TEST_CASE("speculate: without drafts a seed gives the text it gives generate()") {
  const Drafted& at = models()[0];
  Sampling sampling;
  sampling.temperature = 0.9;
  sampling.top_p = 0.95;
  for (sampling.seed = 0; sampling.seed < 20; ++sampling.seed) {
    const std::vector<int> prompt = random_ids(4, at.model.config.vocab_size, sampling.seed);
    const Outcome plain = plainly(at.model, prompt, sampling, 20);
    DraftStats stats;
    check_same(drafting(at.model, {}, 0, prompt, sampling, 20, stats), plain);
    check_same(drafting(at.model, mtp_drafter(at.model, ops(), at.mtp, sampling), 0, prompt,
                        sampling, 20, stats),
               plain);
  }
}

TEST_CASE("speculate: while it pays is the same text, whatever the clock says") {
  for (const Drafted& at : models()) {
    const std::vector<int> prompt = random_ids(9, at.model.config.vocab_size, 4);
    const Outcome plain = plainly(at.model, prompt, {}, 300);
    for (const bool knows : {false, true}) {
      DraftStats stats;
      Outcome outcome{{}, empty_sequence(at.model.config)};
      outcome.answer = speculate(
          at.model, ops(),
          knows ? prophet(plain.answer.ids, 9, 1) : mtp_drafter(at.model, ops(), at.mtp, {}), 3,
          Drafting::while_it_pays, outcome.sequence, prompt, {}, 300, {}, stats);
      check_same(outcome, plain);
      CHECK(stats.plain_steps >= 4);
      CHECK(round_count(stats) >= 12);
      CHECK(mean_costs(stats).plain > 0);
      CHECK(mean_costs(stats).verify > 0);
    }
  }
}

TEST_CASE("speculate: what is no number of drafts or tokens is refused") {
  const Drafted& at = models()[0];
  DraftStats stats;
  check_throws_with([&] { drafting(at.model, {}, -1, {{3}}, {}, 5, stats); },
                    "[speculate] -1 drafts, 5 tokens at most: expected numbers from 0");
  check_throws_with([&] { drafting(at.model, {}, 2, {{3}}, {}, -5, stats); },
                    "[speculate] 2 drafts, -5 tokens");
  check_throws_with([&] { drafting(at.model, {}, 2, {}, {}, 5, stats); }, "no tokens");
}

TEST_CASE("mean_accepted: drafts accepted in a round, on average") {
  DraftStats stats;
  CHECK(mean_accepted(stats) == 0);
  stats.rounds = {2, 1, 1};
  CHECK(round_count(stats) == 4);
  CHECK(mean_accepted(stats) == doctest::Approx(0.75));
}

TEST_CASE("expect_same_text: another text is refused with both hashes") {
  const std::vector<int> text = {3, 1, 4, 1, 5}, other = {3, 1, 4, 1, 6};
  expect_same_text(text, text, 2);
  check_throws_with([&] { expect_same_text(text, other, 2); },
                    "[speculate] with 2 drafts a round the text's hash is");
  CHECK(text_hash(std::vector<int>{1, 256}) != text_hash(std::vector<int>{256, 1}));
}

// ---- drawn text ----

namespace {

constexpr int kVocab = 20, kSamples = 100000;

Sampling cases_sampling() {
  Sampling sampling;
  sampling.temperature = 0.7;
  sampling.top_k = 5;
  sampling.top_p = 0.8;
  return sampling;
}

// A model without a network: row `last` are the logits of the token after `last`.
Tensor2 random_table(std::uint64_t seed, double spread) {
  std::mt19937_64 generator(seed);
  Tensor2 table = uninit(kVocab, kVocab);
  for (float& logit : table) logit = static_cast<float>(spread * uniform(generator));
  return table;
}

std::span<const float> after(const Tensor2& table, int id) {
  return {row(table, id), kVocab};
}

using Verify = std::function<std::vector<int>(const Tensor2&, std::span<const Draft>,
                                              const Sampling&, History&, std::mt19937_64&)>;

// Counts of the first two tokens after token 0, each sample from rounds of two drafts of another
// table (without drafts: of none).
std::vector<int> pair_counts(const Verify& rule, int drafts_per_round, std::uint64_t seed) {
  static const Tensor2 model = random_table(1, 6), guesser = random_table(2, 6);
  const Sampling sampling = cases_sampling();
  std::mt19937_64 generator(seed);
  std::vector<int> counts(kVocab * kVocab);
  for (int n = 0; n < kSamples; ++n) {
    std::vector<int> text = {0};
    while (text.size() < 3) {
      std::vector<Draft> drafts;
      std::vector<int> ids = {text.back()};
      for (int i = 0; i < drafts_per_round; ++i) {
        const Distribution q = distribution(after(guesser, ids.back()), sampling, {});
        ids.push_back(draw(q, uniform(generator)));
        drafts.push_back({ids.back(), q});
      }
      Tensor2 logits = uninit(ids.size(), kVocab);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        std::copy_n(row(model, ids[i]), kVocab, row(logits, static_cast<int>(i)));
      }
      History history;
      for (const int id : rule(logits, drafts, sampling, history, generator)) text.push_back(id);
    }
    ++counts[text[1] * kVocab + text[2]];
  }
  return counts;
}

const std::vector<int>& plain_pair_counts() {
  static const std::vector<int> counts = pair_counts(verify, 0, 1);
  return counts;
}

// Chi-square of two samples of equal size, in standard deviations above its mean: the statistic's
// mean is the degrees of freedom f, its variance 2 f.
double chi_square(const std::vector<int>& a, const std::vector<int>& b) {
  double statistic = 0;
  int cells = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] + b[i] == 0) continue;
    statistic += (a[i] - b[i]) * static_cast<double>(a[i] - b[i]) / (a[i] + b[i]);
    ++cells;
  }
  return (statistic - (cells - 1)) / std::sqrt(2.0 * (cells - 1));
}

// ---- wrong rules ----

// The token in the place of a rejected one is drawn from p, not from what p has more than q.
std::vector<int> verify_drawing_from_p(const Tensor2& logits, std::span<const Draft> drafts,
                                       const Sampling& sampling, History& history,
                                       std::mt19937_64& generator) {
  std::vector<int> tokens;
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    const auto row_i = std::span(row(logits, static_cast<int>(i)), kVocab);
    const Distribution p = distribution(row_i, sampling, history);
    const auto in = [&](const Distribution& all) {
      for (const Candidate& one : all) {
        if (one.id == drafts[i].id) return one.probability;
      }
      return 0.0;
    };
    if (uniform(generator) * in(drafts[i].from) >= in(p)) {
      tokens.push_back(draw(p, uniform(generator)));
      return tokens;
    }
    tokens.push_back(drafts[i].id);
  }
  const auto last = std::span(row(logits, static_cast<int>(drafts.size())), kVocab);
  tokens.push_back(draw(distribution(last, sampling, history), uniform(generator)));
  return tokens;
}

// Accepts whatever the model itself might have drawn.
std::vector<int> verify_accepting_the_possible(const Tensor2& logits, std::span<const Draft> drafts,
                                               const Sampling& sampling, History& history,
                                               std::mt19937_64& generator) {
  std::vector<Draft> certain(drafts.begin(), drafts.end());
  for (Draft& draft : certain) draft.from = {{draft.id, 1e-9}};
  return verify(logits, certain, sampling, history, generator);
}

// p before temperature and top-k, q after them.
std::vector<int> verify_with_another_p(const Tensor2& logits, std::span<const Draft> drafts,
                                       const Sampling& sampling, History& history,
                                       std::mt19937_64& generator) {
  Sampling untouched = sampling;
  untouched.temperature = 1;
  untouched.top_k = 0;
  untouched.top_p = 1;
  return verify(logits, drafts, untouched, history, generator);
}

}  // namespace

TEST_CASE("verify: 100,000 samples with drafts and without are of one distribution") {
  const std::vector<int>& plain = plain_pair_counts();
  CHECK(chi_square(pair_counts(verify, 0, 2), plain) < 4);
  for (const int drafts : {1, 2, 4}) {
    CAPTURE(drafts);
    CHECK(chi_square(pair_counts(verify, drafts, 3), plain) < 4);
  }
}

TEST_CASE("planted bugs: wrong rules of rejection are noticed" * in_long) {
  const std::vector<int>& plain = plain_pair_counts();
  CHECK(chi_square(pair_counts(verify_drawing_from_p, 2, 3), plain) > 100);
  CHECK(chi_square(pair_counts(verify_accepting_the_possible, 2, 3), plain) > 100);
  CHECK(chi_square(pair_counts(verify_with_another_p, 2, 3), plain) > 100);
}

TEST_CASE("speculate: text drawn with the MTP's drafts is of the model's distribution" * in_long) {
  Config config = named_shape("tiny");
  config.vocab_size = kVocab;
  config.hidden_size = 24;
  config.intermediate_size = 31;
  config.num_hidden_layers = 2;
  config.layer_types = {LayerType::linear_attention, LayerType::full_attention};
  config.eos_token_id = {19};
  const Drafted at = random_drafted(config, DType::F32);
  const std::vector<int> prompt = {3, 1, 4};
  constexpr int kTexts = 10000;
  Sampling sampling = cases_sampling();
  // The first three tokens, of which 20 for "ended before".
  const auto counts = [&](int drafts, std::uint64_t seed, DraftStats& stats) {
    std::map<std::array<int, 3>, int> found;
    for (int n = 0; n < kTexts; ++n) {
      sampling.seed = seed + n;
      Sequence sequence = empty_sequence(config);
      const Answer answer =
          speculate(at.model, ops(), mtp_drafter(at.model, ops(), at.mtp, sampling), drafts,
                    Drafting::always, sequence, prompt, sampling, 3, {}, stats);
      std::array<int, 3> text = {20, 20, 20};
      std::copy(answer.ids.begin(), answer.ids.end(), text.begin());
      ++found[text];
    }
    return found;
  };
  DraftStats stats;
  const auto plain = counts(0, 0, stats), drafted = counts(2, 1000000, stats);
  std::vector<int> a, b;
  for (const auto& [text, count] : plain) {
    a.push_back(count);
    b.push_back(drafted.contains(text) ? drafted.at(text) : 0);
  }
  CHECK(a.size() > 20);
  CHECK(chi_square(a, b) < 4);
}

// ---- does it pay? ----

TEST_CASE("payoff: break-even by hand") {
  const Costs costs{.plain = 10, .drafts = 4, .verify = 11};
  CHECK(break_even(costs) == doctest::Approx(0.5));
  CHECK(speedup(costs, 0.5) == doctest::Approx(1));
  CHECK(speedup(costs, 2) == doctest::Approx(2));
  CHECK(acceptance_needed(0.5, 1) == doctest::Approx(0.5));
  CHECK(acceptance_needed(0.75, 2) == doctest::Approx(0.5));  // 0.5 + 0.25
  CHECK(acceptance_needed(4, 4) == doctest::Approx(1));
  CHECK(acceptance_needed(5, 4) > 1);
  CHECK(acceptance_needed(-0.2, 4) == 0);
}

TEST_CASE("payoff: a mean forgets") {
  Mean mean;
  add(mean, 2);
  CHECK(mean.value == 2);
  add(mean, 4);
  CHECK(mean.value == doctest::Approx(3));
  for (int i = 0; i < 200; ++i) add(mean, 10);
  CHECK(mean.value == doctest::Approx(10).epsilon(1e-4));
}

TEST_CASE("payoff: drafting is tried, goes on while it pays, rests when it does not") {
  Payoff payoff;
  const auto steps_until_drafting = [&] {
    int steps = 0;
    for (; !drafts_now(payoff); ++steps) note_plain_step(payoff, 0.010);
    return steps;
  };
  const auto rounds_until_plain = [&](int accepted) {
    int rounds = 0;
    for (; drafts_now(payoff) && rounds < 1000; ++rounds) {
      note_round(payoff, 0.004, 0.011, accepted);  // break-even: 0.5
    }
    return rounds;
  };
  CHECK(steps_until_drafting() == 4);
  CHECK(rounds_until_plain(1) == 1000);
  CHECK(rounds_until_plain(0) < 32);  // the text has become harder
  CHECK(steps_until_drafting() == 32);
  CHECK(rounds_until_plain(0) == 12);
  CHECK(steps_until_drafting() == 64);
  CHECK(rounds_until_plain(2) == 1000);  // and easier
  CHECK(rounds_until_plain(0) < 32);
  for (const int pause : {32, 64, 128, 256, 512, 1024, 1024}) {
    CHECK(steps_until_drafting() == pause);
    CHECK(rounds_until_plain(0) == 12);
  }
  CHECK(costs(payoff).plain == doctest::Approx(0.010));
}
