#include "qwen/generate.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace qwen {

bool is_end_token(const Config& config, int id) {
  const std::vector<int>& ends = config.eos_token_id;
  return std::find(ends.begin(), ends.end(), id) != ends.end();
}

AnswerLimit answer_limit(const Config& config, int position, int max_tokens) {
  const int room = config.max_position_embeddings - position;
  return {std::min(max_tokens, room), max_tokens <= room ? Ending::max_tokens : Ending::context};
}

bool add_token(const Config& config, const AnswerLimit& limit, int id, const OnToken& on_token,
               Answer& answer) {
  if (is_end_token(config, id)) {
    answer.ending = Ending::end_token;
    answer.end_token = id;
    return true;
  }
  answer.ids.push_back(id);
  if (on_token && !on_token(id)) {
    answer.ending = Ending::stopped;
    return true;
  }
  if (static_cast<int>(answer.ids.size()) < limit.tokens) return false;
  answer.ending = limit.ending;
  return true;
}

Answer generate(const Model& model, const Ops& ops, Sequence& sequence, std::span<const int> prompt,
                const Sampling& sampling, int max_tokens, const OnToken& on_token) {
  check_sampling(sampling);
  if (max_tokens < 0) {
    throw std::invalid_argument("[generate] max_tokens is " + std::to_string(max_tokens) +
                                ", expected a number from 0");
  }
  History history;
  add_prompt(history, sequence.ids);
  add_prompt(history, prompt);
  std::mt19937_64 generator(sampling.seed);

  Tensor2 logits = read(model, ops, sequence, prompt);
  const AnswerLimit limit = answer_limit(model.config, sequence.state.position, max_tokens);
  Answer answer{{}, limit.ending};
  if (limit.tokens == 0) return answer;
  for (;;) {
    const int id = draw(distribution(logits, sampling, history), uniform(generator));
    if (add_token(model.config, limit, id, on_token, answer)) return answer;
    add_answer(history, id);
    logits = read(model, ops, sequence, {&id, 1});
  }
}

}  // namespace qwen
