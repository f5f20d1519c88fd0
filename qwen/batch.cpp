#include "qwen/batch.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "qwen/parallel.h"

namespace qwen {
namespace {

// Those whose next token is wanted.
std::vector<Running*> writers_of(Batch& batch) {
  std::vector<Running*> writers;
  for (Running& running : batch) {
    if (unread(running) == 0) writers.push_back(&running);
  }
  return writers;
}

void fail(Running& running, const std::string& why) {
  if (running.error.empty()) running.error = why;  // what came first is the cause
  running.ended = true;
}

// Takes those whose answers have ended out of the batch.
std::vector<Running> leave(Batch& batch) {
  const auto ended = std::stable_partition(batch.begin(), batch.end(),
                                           [](const Running& running) { return !running.ended; });
  std::vector<Running> left(std::make_move_iterator(ended), std::make_move_iterator(batch.end()));
  batch.erase(ended, batch.end());
  return left;
}

}  // namespace

int tokens_at_most(const Config& config, const Request& request) {
  const std::int64_t wanted =
      static_cast<std::int64_t>(request.prompt.size()) + std::max(request.max_tokens - 1, 0);
  return static_cast<int>(std::min<std::int64_t>(wanted, config.max_position_embeddings));
}

void check_request(const Config& config, const Request& request) {
  check_tokens(config, request.prompt, 0);
  check_sampling(request.sampling);
  if (request.max_tokens < 0) {
    throw std::invalid_argument("[batch] max_tokens is " + std::to_string(request.max_tokens) +
                                ", expected 0 or more");
  }
}

Running start(const Config& config, int number, Request request) {
  check_request(config, request);
  Running running;
  running.number = number;
  running.ids = request.prompt;
  running.state = roomy_state(config, tokens_at_most(config, request));
  add_prompt(running.history, request.prompt);
  running.generator.seed(request.sampling.seed);
  running.request = std::move(request);
  return running;
}

int unread(const Running& running) {
  return static_cast<int>(running.ids.size()) - running.state.position;
}

std::vector<int> share_rows(const Batch& batch, int max_rows) {
  int left = max_rows - static_cast<int>(batch.size());
  if (left < 0) {
    throw std::invalid_argument("[batch] " + std::to_string(batch.size()) + " sequences for " +
                                std::to_string(max_rows) + " rows a step: each needs at least 1");
  }
  std::vector<int> rows;
  for (const Running& running : batch) {
    const int more = std::min(unread(running) - 1, left);
    rows.push_back(1 + more);
    left -= more;
  }
  return rows;
}

Tensor2 read_rows(const Model& model, const Ops& ops, Batch& batch, const std::vector<int>& rows) {
  std::vector<int> ids;
  std::vector<Share<State>> shares;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto next = batch[i].ids.begin() + batch[i].state.position;
    ids.insert(ids.end(), next, next + rows[i]);
    shares.push_back({&batch[i].state, rows[i]});
  }
  const Tensor2 hidden =
      hidden_states(model, ops, ids, shares,
                    [&](std::size_t i, const std::string& what) { fail(batch[i], what); });

  // The head is wide: it runs on the rows whose next token is wanted, and no others.
  const std::vector<Running*> writers = writers_of(batch);
  if (writers.empty()) return uninit(0, model.config.vocab_size);
  Tensor2 last = uninit(writers.size(), model.config.hidden_size);
  int end = 0, writer = 0;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    end += rows[i];
    if (unread(batch[i]) > 0) continue;
    std::copy_n(row(hidden, end - 1), dim(hidden, 1), row(last, writer++));
  }
  return head(model, ops, last,
              [&](std::size_t i, const std::string& what) { fail(*writers[i], what); });
}

int choose(Running& running, std::span<const float> logits) {
  return draw(distribution(logits, running.request.sampling, running.history),
              uniform(running.generator));
}

void add_token(const Config& config, Running& running, int id) {
  const Request& request = running.request;
  Answer& answer = running.answer;
  const AnswerLimit limit =
      answer_limit(config, static_cast<int>(request.prompt.size()), request.max_tokens);
  if (limit.tokens == 0) {  // none is wanted, or the prompt fills the context
    answer.ending = limit.ending;
    running.ended = true;
    return;
  }
  running.ended = add_token(config, limit, id, request.on_token, answer);
  if (answer.ending == Ending::end_token) return;
  running.ids.push_back(id);
  add_answer(running.history, id);
}

std::vector<Running> step(const Model& model, const Ops& ops, Batch& batch, int max_rows) {
  const Tensor2 logits = read_rows(model, ops, batch, share_rows(batch, max_rows));
  const std::vector<Running*> writers = writers_of(batch);
  // Choosing from a large vocabulary takes a while; each looks only at what is its own.
  std::vector<int> chosen(writers.size());
  parallel_for(static_cast<int>(writers.size()), 1, [&](int begin, int end) {
    for (int i = begin; i < end; ++i) {
      chosen[i] = choose(*writers[i], {row(logits, i), logits.shape(1)});
    }
  });
  for (std::size_t i = 0; i < writers.size(); ++i) {
    if (!writers[i]->ended) add_token(model.config, *writers[i], chosen[i]);
  }
  return leave(batch);
}

std::size_t bytes_for(const Config& config, int tokens) {
  std::size_t floats = 0;
  for (const LayerType type : config.layer_types) {
    if (type == LayerType::full_attention) {
      floats += std::size_t{2} * tokens * config.num_key_value_heads * config.head_dim;
    } else {
      const std::size_t keys = config.linear_num_key_heads * config.linear_key_head_dim;
      const std::size_t values = config.linear_num_value_heads * config.linear_value_head_dim;
      floats += values * config.linear_key_head_dim;                        // S
      floats += (config.linear_conv_kernel_dim - 1) * (2 * keys + values);  // the tail
    }
  }
  return floats * sizeof(float);
}

std::size_t bytes_held(const State& state) {
  std::size_t floats = 0;
  for (const LayerState& layer : state.layers) {
    if (const auto* kv = std::get_if<KVCache>(&layer)) {
      floats += kv->keys.size() + kv->values.size();
    } else {
      const auto& delta = std::get<DeltaState>(layer);
      floats += delta.S.size() + delta.tail.size();
    }
  }
  return floats * sizeof(float);
}

}  // namespace qwen
