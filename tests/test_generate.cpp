#include "qwen/generate.h"
#include "qwen/tables.h"
#include "tests/comparisons.h"

using namespace qwen;

TEST_CASE("generate: greedy is the likeliest token, read, and again") {
  SmallModel small = small_model("tiny");
  small.model.config.eos_token_id.clear();
  const std::vector<int> prompt(small.ids.begin(), small.ids.begin() + 5);
  Sequence sequence = empty_sequence(small.model.config);
  const Answer answer = generate(small.model, fast_ops(), sequence, prompt, {}, 7, nullptr);
  std::vector<int> text = prompt;
  for (int i = 0; i < 7; ++i) {
    State state = empty_state(small.model.config);
    text.push_back(argmax(forward(small.model, fast_ops(), text, state)));
  }
  CHECK(answer.ids == std::vector<int>(text.begin() + 5, text.end()));
  CHECK(answer.ending == Ending::max_tokens);
}
