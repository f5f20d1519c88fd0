#include "qwen/generate.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace qwen {

bool is_end_token(const Config& config, int id) {
  const std::vector<int>& ends = config.eos_token_id;
  return std::find(ends.begin(), ends.end(), id) != ends.end();
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
  const int room = model.config.max_position_embeddings - sequence.state.position;
  Answer answer{{}, max_tokens <= room ? Ending::max_tokens : Ending::context};
  for (int i = 0; i < std::min(max_tokens, room); ++i) {
    if (i > 0) logits = read(model, ops, sequence, {&answer.ids.back(), 1});
    const int id = draw(distribution(logits, sampling, history), uniform(generator));
    if (is_end_token(model.config, id)) return {answer.ids, Ending::end_token, id};
    answer.ids.push_back(id);
    add_answer(history, id);
    if (on_token && !on_token(id)) return {answer.ids, Ending::stopped};
  }
  return answer;
}

}  // namespace qwen
