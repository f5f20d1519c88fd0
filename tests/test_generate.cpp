#include <algorithm>
#include <functional>
#include <set>

#include "qwen/generate.h"
#include "qwen/json.h"
#include "qwen/parallel.h"
#include "qwen/tables.h"
#include "tests/comparisons.h"

using namespace qwen;

namespace {

using Ids = std::vector<int>;

constexpr Sampling kSampled{.temperature = 1.5, .top_k = 40, .top_p = .95, .seed = 7};

// The small checkpoint whose texts nothing ends, unless a test says so.
Model endless_model(int context = 512) {
  Model model = small_model("tiny").model;
  model.config.eos_token_id.clear();
  model.config.max_position_embeddings = context;
  return model;
}

const Ids kPrompt = {18, 4, 200, 31, 77};

Ids join(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A text, and the sequence it leaves behind.
struct Written {
  Sequence sequence;
  Answer answer;

  Written(const Model& model, const Sampling& sampling, int max_tokens,
          const OnToken& on_token = nullptr)
      : sequence(empty_sequence(model.config)),
        answer(generate(model, ops(), sequence, kPrompt, sampling, max_tokens, on_token)) {}
};

// ---- the reference: texts of transformers' generate() (tools/reference_sampling.py) ----

using Generate =
    std::function<Answer(const Model&, const Ids& prompt, const Sampling&, int max_tokens)>;

Answer right(const Model& model, const Ids& prompt, const Sampling& sampling, int max_tokens) {
  Sequence sequence = empty_sequence(model.config);
  return generate(model, ops(), sequence, prompt, sampling, max_tokens, nullptr);
}

std::string texts_complaint(const Generate& write) {
  Model model = endless_model();
  const Json reference = read_json("sampling.json");
  for (const Json& text : reference["texts"]) {
    const Json& s = text["sampling"];
    model.config.eos_token_id = text["ends"].get<Ids>();
    const Sampling sampling{.repetition_penalty = s["repetition_penalty"],
                            .presence_penalty = s["presence_penalty"],
                            .frequency_penalty = s["frequency_penalty"]};
    const int end_token = text["end_token"];
    const Answer answer = write(model, text["prompt"], sampling, 40);
    const Ending ending = end_token < 0 ? Ending::max_tokens : Ending::end_token;
    if (answer.ids != text["ids"].get<Ids>()) return "other tokens than in " + text.dump();
    if (answer.ending != ending || answer.end_token != end_token) {
      return "another ending than in " + text.dump();
    }
  }
  return "";
}

// generate() once more, with two parts that can be got wrong.
using HistoryOf = std::function<History(const Ids& prompt, const Ids& answer)>;
using Ends = std::function<bool(const Config&, int id)>;

History whole_history(const Ids& prompt, const Ids& answer) {
  History history;
  add_prompt(history, prompt);
  for (const int id : answer) add_answer(history, id);
  return history;
}

Generate loop(const HistoryOf& history_of, const Ends& ends) {
  return [=](const Model& model, const Ids& prompt, const Sampling& sampling, int max_tokens) {
    Answer answer;
    while (static_cast<int>(answer.ids.size()) < max_tokens) {
      State state = empty_state(model.config);
      const Tensor2 logits = forward(model, ops(), join(prompt, answer.ids), state);
      const int id = distribution(logits, sampling, history_of(prompt, answer.ids))[0].id;
      if (ends(model.config, id)) return Answer{answer.ids, Ending::end_token, id};
      answer.ids.push_back(id);
    }
    return answer;
  };
}

}  // namespace

TEST_CASE("generate: the texts of transformers' generate(), with penalties and end tokens") {
  CHECK(texts_complaint(right) == "");
}

TEST_CASE("planted bugs: penalties on the last token, and an end token forgotten, are noticed") {
  const HistoryOf last_token = [](const Ids& prompt, const Ids& answer) {
    return whole_history({}, {answer.empty() ? prompt.back() : answer.back()});
  };
  const Ends first_one = [](const Config& config, int id) {
    return !config.eos_token_id.empty() && id == config.eos_token_id.front();
  };
  CHECK(texts_complaint(loop(whole_history, is_end_token)) == "");
  CHECK(texts_complaint(loop(last_token, is_end_token)).starts_with("other tokens"));
  CHECK(texts_complaint(loop(whole_history, first_one)).starts_with("other tokens"));
}

TEST_CASE("generate: greedy is the likeliest token, read, and again") {
  const Model model = endless_model();
  Ids text = kPrompt;
  for (int i = 0; i < 7; ++i) {
    State state = empty_state(model.config);
    text.push_back(argmax(forward(model, ops(), text, state)));
  }
  CHECK(join(kPrompt, Written(model, {}, 7).answer.ids) == text);
}

TEST_CASE("generate: a seed is a text, whatever the threads; another seed another text") {
  const Model model = endless_model();
  const Ids first = Written(model, kSampled, 30).answer.ids;
  const int before = thread_count();
  for (const int threads : {1, 2, 3}) {
    set_thread_count(threads);
    CHECK(Written(model, kSampled, 30).answer.ids == first);
  }
  set_thread_count(before);
  std::set<Ids> texts;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Sampling sampling = kSampled;
    sampling.seed = seed;
    texts.insert(Written(model, sampling, 30).answer.ids);
  }
  CHECK(texts.size() == 10);
}

TEST_CASE("generate: each draw takes the next number of the seed's generator") {
  const Model model = endless_model();
  std::mt19937_64 generator(kSampled.seed);
  Ids text = kPrompt;
  for (int i = 0; i < 10; ++i) {
    State state = empty_state(model.config);
    const Tensor2 logits = forward(model, ops(), text, state);
    text.push_back(draw(distribution(logits, kSampled, {}), uniform(generator)));
  }
  CHECK(join(kPrompt, Written(model, kSampled, 10).answer.ids) == text);
}

TEST_CASE("generate: goes on after what the sequence holds, which penalties see as prompt") {
  const Model model = endless_model();
  Sampling sampling = kSampled;
  sampling.repetition_penalty = 1.3;
  const Ids expected = Written(model, sampling, 20).answer.ids;
  Sequence sequence = empty_sequence(model.config);
  read(model, ops(), sequence, std::span(kPrompt).first(3));
  const Answer answer =
      generate(model, ops(), sequence, std::span(kPrompt).subspan(3), sampling, 20, nullptr);
  CHECK(answer.ids == expected);
}

TEST_CASE("generate: at the limit of tokens all but the last has been read") {
  const Model model = endless_model();
  const Written at(model, kSampled, 9);
  CHECK(at.answer.ending == Ending::max_tokens);
  CHECK(at.answer.end_token == -1);
  REQUIRE(at.answer.ids.size() == 9);
  const Ids read_ids(at.answer.ids.begin(), at.answer.ids.end() - 1);
  CHECK(at.sequence.ids == join(kPrompt, read_ids));
  CHECK(at.sequence.state.position == 13);

  const Written none(model, kSampled, 0);
  CHECK(none.answer.ids.empty());
  CHECK(none.answer.ending == Ending::max_tokens);
  CHECK(none.sequence.ids == kPrompt);
}

TEST_CASE("generate: any of the end tokens ends a text, and is not read") {
  Model model = endless_model();
  const Ids text = Written(model, {}, 9).answer.ids;
  REQUIRE(std::count(text.begin(), text.end(), text[6]) == 1);
  for (const Ids& ends : {Ids{text[6]}, Ids{0, text[6]}, Ids{text[6], 0}}) {
    model.config.eos_token_id = ends;
    int called = 0;
    const Written at(model, {}, 9, [&](int) { return ++called > 0; });
    CHECK(at.answer.ending == Ending::end_token);
    CHECK(at.answer.end_token == text[6]);
    CHECK(at.answer.ids == Ids(text.begin(), text.begin() + 6));
    CHECK(at.sequence.ids == join(kPrompt, at.answer.ids));  // all of it has been read
    CHECK(called == 6);
  }
  CHECK(is_end_token(model.config, text[6]));
  CHECK(!is_end_token(model.config, text[5]));
}

TEST_CASE("generate: hands on each token as it comes, and stops where it is told to") {
  const Model model = endless_model();
  Ids seen;
  const Written at(model, kSampled, 9, [&](int id) {
    seen.push_back(id);
    return seen.size() < 4;
  });
  CHECK(at.answer.ending == Ending::stopped);
  CHECK(at.answer.ids == seen);
  CHECK(seen.size() == 4);
  CHECK(at.sequence.state.position == 5 + 3);
}

TEST_CASE("generate: prompt and answer together fill the context, and no more") {
  for (const int room : {0, 1, 4}) {
    const Model model = endless_model(5 + room);
    const Written at(model, kSampled, 500);
    CHECK(at.answer.ending == Ending::context);
    CHECK(static_cast<int>(at.answer.ids.size()) == room);
    CHECK(Written(model, kSampled, room).answer.ending == Ending::max_tokens);
  }
}

TEST_CASE("generate: what is left behind is the state of what was read") {
  const Model model = endless_model();
  Written at(model, kSampled, 9);
  Sequence fresh = empty_sequence(model.config);
  const Ids more = {at.answer.ids.back(), 3};
  const Tensor2 expected = read(model, ops(), fresh, join(join(kPrompt, at.answer.ids), {3}));
  check_same_bits("after the answer", read(model, ops(), at.sequence, more), expected);
  CHECK(state_difference(at.sequence.state, fresh.state) == "");
}

TEST_CASE("generate: what cannot be written is refused before anything is read") {
  const Model model = endless_model(6);
  Sequence sequence = empty_sequence(model.config);
  const auto refused = [&](const Ids& prompt, const Sampling& sampling, int max_tokens,
                           const std::string& part) {
    check_throws_with(
        [&] { generate(model, ops(), sequence, prompt, sampling, max_tokens, nullptr); }, part);
    CHECK(sequence.state.position == 0);
  };
  refused(kPrompt, {}, -1, "[generate] max_tokens is -1, expected a number from 0");
  refused(kPrompt, {.temperature = -1}, 5, "[sampling] temperature is -1");
  refused({}, {}, 5, "[read] no tokens");
  refused({1, 2, 3, 4, 5, 6, 7}, {}, 5, "do not fit into the model's context of 6");
}
