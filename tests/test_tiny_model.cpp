// The model in the box, on documents that its training never saw: what it can do by our code, in
// float32 and bf16, and that this is what transformers gets from the same files.
#include <algorithm>
#include <cmath>
#include <map>

#include "qwen/json.h"
#include "qwen/load.h"
#include "qwen/parallel.h"
#include "qwen/tables.h"
#include "tests/support.h"

using namespace qwen;

namespace {

// tiny_held_out.json (tools/eval_tiny.py --save): a prompt, what transformers answered in float32,
// and the right answer; each answer with the token that ends it.
struct Question {
  std::string kind;
  std::vector<int> prompt, answer, expected;
};

struct HeldOut {
  double perplexity;
  std::vector<Question> questions;
};

HeldOut held_out() {
  const Json file = read_json("tiny_held_out.json");
  HeldOut result{file["perplexity"], {}};
  for (const Json& document : file["documents"]) {
    result.questions.push_back(
        {document["kind"], document["prompt"], document["answer"], document["expected"]});
  }
  return result;
}

// On one thread: the operators of so small a model are done before a second one is awake.
Model tiny_model(DType dtype) {
  set_thread_count(1);
  return load_model("../../models/tiny", dtype);
}

std::vector<int> greedy_answer(const Model& model, const std::vector<int>& prompt) {
  constexpr std::size_t kLongest = 160;  // as in eval_tiny.py
  const Ops ops = fast_ops();
  const std::vector<int>& ends = model.config.eos_token_id;
  State state = empty_state(model.config);
  std::vector<int> ids{argmax(forward(model, ops, prompt, state))};
  while (std::ranges::find(ends, ids.back()) == ends.end() && ids.size() < kLongest) {
    ids.push_back(argmax(forward(model, ops, {&ids.back(), 1}, state)));
  }
  return ids;
}

// -log p of every id but the first, summed.
double loss(const Model& model, const std::vector<int>& ids) {
  const Ops ops = fast_ops();
  State state = empty_state(model.config);
  const Share<State> alone{&state, static_cast<int>(ids.size())};
  const Tensor2 logits = head(model, ops, hidden_states(model, ops, ids, {&alone, 1}));
  double sum = 0;
  for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
    sum -= log_softmax(logits, static_cast<int>(t))[ids[t + 1]];
  }
  return sum;
}

// What the model has to show, by kind of question: the share of answers right to the letter. A
// dialogue asks for anything, stories too, of which there are many right ones.
const std::map<std::string, double> kRequired = {
    {"recall", 0.95}, {"addition", 0.95}, {"facts", 0.98}, {"dialogue", 0}};

bool is_required(const Question& question) {
  return kRequired.contains(question.kind);
}

// `same`: how many answers are transformers' to the token.
void check_answers(const Model& model, const HeldOut& test, bool (*asks)(const Question&),
                   int& same) {
  std::map<std::string, int> asked, right, stopped;
  for (const Question& question : test.questions) {
    if (!asks(question)) continue;
    const std::vector<int> answer = greedy_answer(model, question.prompt);
    ++asked[question.kind];
    right[question.kind] += answer == question.expected;
    stopped[question.kind] += std::ranges::find(model.config.eos_token_id, answer.back()) !=
                              model.config.eos_token_id.end();
    same += answer == question.answer;
  }
  for (const auto& required : kRequired) {
    const std::string& kind = required.first;
    CAPTURE(kind);  // takes no structured binding with clang 14
    REQUIRE(asked[kind] >= 200);
    CHECK(right[kind] >= required.second * asked[kind]);
    CHECK(stopped[kind] >= 0.99 * asked[kind]);
  }
}

}  // namespace

TEST_CASE("tiny model: in float32 it answers held-out questions as transformers does") {
  const HeldOut test = held_out();
  int same = 0;
  const auto all = [](const Question&) { return true; };
  check_answers(tiny_model(DType::F32), test, all, same);
  CHECK(same == static_cast<int>(test.questions.size()));
}

TEST_CASE("tiny model: in bf16 it answers held-out questions") {
  const HeldOut test = held_out();
  int same = 0;
  check_answers(tiny_model(DType::BF16), test, is_required, same);
  const auto asked = std::ranges::count_if(test.questions, is_required);
  MESSAGE(same << " of " << asked << " answers are those of float32");
}

TEST_CASE("tiny model: the perplexity of held-out dialogues is transformers' within 0.1 %") {
  const HeldOut test = held_out();
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const Model model = tiny_model(dtype);
    double sum = 0;
    std::size_t count = 0;
    for (const Question& question : test.questions) {
      if (question.kind != "dialogue") continue;
      std::vector<int> ids = question.prompt;
      ids.insert(ids.end(), question.expected.begin(), question.expected.end());
      sum += loss(model, ids);
      count += ids.size() - 1;
    }
    const double perplexity = std::exp(sum / static_cast<double>(count));
    CHECK(std::abs(perplexity / test.perplexity - 1) < 1e-3);
  }
}
