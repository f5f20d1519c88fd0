// A real model: SmolLM2-135M-Instruct, from its Q4_1 file, against transformers on the same
// dequantised weights. The file is too large for the repository; tools/test fetches it.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "qwen/json.h"
#include "qwen/load.h"
#include "qwen/tables.h"
#include "qwen/tokenizer.h"
#include "tests/support.h"

using namespace qwen;

namespace {

const std::string& smollm2() {
  static const std::string path = built_input(
      "QWEN_SMOLLM2", "models/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf",
      "tools/get_model.py smollm2-135m-instruct --out build/models/smollm2-135m-instruct");
  return path;
}

// Logits of every position of `ids`, [ids, vocab_size].
Tensor2 all_logits(const Model& model, const std::vector<int>& ids) {
  State state = empty_state(model.config);
  const Share<State> alone{&state, static_cast<int>(ids.size())};
  const Ops ops = fast_ops();
  return head(model, ops, hidden_states(model, ops, ids, {&alone, 1}));
}

}  // namespace

TEST_CASE("SmolLM2: 64 greedy tokens after each of ten prompts are those of transformers") {
  const Model model = load_model(smollm2());
  const Tokenizer tokenizer = load_tokenizer(smollm2());
  const Json texts = read_json("smollm2_greedy.json");
  REQUIRE(texts.size() == 10);
  for (const Json& text : texts) {
    const auto prompt_ids = text["prompt_ids"].get<std::vector<int>>();
    const auto expected = text["ids"].get<std::vector<int>>();
    CHECK(encode(tokenizer, text["prompt"].get<std::string>()) == prompt_ids);
    // Where the reference's best logit beats its second by less than this, float32 decides by
    // chance: logits are up to 30, and two orders of summing differ by some 1e-5 of that.
    constexpr double kNearTie = 2e-3;
    for (const Json& margin : text["margins"]) CHECK(margin.get<double>() > kNearTie);

    const Ops ops = fast_ops();
    State state = empty_state(model.config);
    Tensor2 logits = forward(model, ops, prompt_ids, state);
    std::vector<int> ids;
    while (ids.size() < expected.size()) {
      ids.push_back(argmax(logits));
      logits = forward(model, ops, {&ids.back(), 1}, state);
    }
    CHECK(ids == expected);
  }
}

TEST_CASE("SmolLM2: bf16 weights stay within 1e-3 nats of float32 on a page of text") {
  std::stringstream page;
  page << std::ifstream("page.txt").rdbuf();
  const std::vector<int> ids = encode(load_tokenizer(smollm2()), page.str());
  REQUIRE(ids.size() > 400);
  const Tensor2 exact = all_logits(load_model(smollm2()), ids);
  const Tensor2 rounded = all_logits(load_model(smollm2(), DType::BF16), ids);
  double kl = 0;
  int same_top = 0;
  const int T = dim(exact, 0);
  for (int t = 0; t < T; ++t) {
    const std::vector<double> p = log_softmax(exact, t), q = log_softmax(rounded, t);
    for (std::size_t i = 0; i < p.size(); ++i) kl += std::exp(p[i]) * (p[i] - q[i]);
    same_top += std::max_element(p.begin(), p.end()) - p.begin() ==
                std::max_element(q.begin(), q.end()) - q.begin();
  }
  MESSAGE("mean KL " << kl / T << " nats, the same likeliest token at " << same_top << " of " << T);
  CHECK(kl / T <= 1e-3);
  CHECK(kl > 0);
  CHECK(same_top >= 0.97 * T);
}
