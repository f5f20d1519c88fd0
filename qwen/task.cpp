#include "qwen/task.h"

#include <algorithm>
#include <random>

#include "qwen/cache.h"
#include "qwen/hash.h"
#include "qwen/interrupt.h"

namespace qwen {

std::vector<int> sample_ids(const Config& config, int count) {
  std::vector<int> ids;
  for (int i = 0; i < count; ++i) {
    // A multiplicative hash: neighbours lie far apart, so that no row of the table is read twice.
    ids.push_back(static_cast<int>((i + 1) * std::uint64_t{2654435761} % 4294967296 *
                                       static_cast<std::uint64_t>(config.vocab_size) >>
                                   32));
  }
  return ids;
}

namespace {

// A greedy text that is being written: the token to read next, and a hash of all of them.
struct Text {
  int next = 0;
  std::uint64_t hash = kHashOfNothing;
};

void read(const Model& model, const Ops& ops, std::span<const int> ids, State& state, Text& text) {
  if (interrupted()) throw Interrupted{};
  text.next = argmax(forward(model, ops, ids, state));
  text.hash = hash_with(text.hash, static_cast<std::uint64_t>(text.next));
}

// Numbers between -1 and 1 that repeat after a length that no row has.
void make_up(Tensor3& x) {
  constexpr std::size_t kLength = 8191;
  std::minstd_rand random(1);
  std::vector<float> numbers(kLength);
  for (float& number : numbers) {
    number = 2 * static_cast<float>(random()) / static_cast<float>(random.max()) - 1;
  }
  for (std::size_t i = 0; i < x.size(); i += kLength) {
    std::copy_n(numbers.data(), std::min(kLength, x.size() - i), x.data() + i);
  }
}

}  // namespace

Run run_task(const Model& model, const Ops& ops, const std::vector<int>& prompt, int steps) {
  State state = empty_state(model.config);
  Text text;
  const Run prefill = timed([&] { read(model, ops, prompt, state, text); });
  const Run decode = timed([&] {
    for (int i = 0; i < steps; ++i) read(model, ops, {&text.next, 1}, state, text);
  });
  return {{prefill.seconds[0], decode.seconds[0]}, text.hash};
}

State filled_state(const Config& config, int context, int room) {
  State state = roomy_state(config, context + room);
  for (LayerState& layer : state.layers) {
    if (KVCache* cache = std::get_if<KVCache>(&layer)) {
      make_up(cache->keys);
      make_up(cache->values);
    }
  }
  rewind(config, state, context);
  return state;
}

void rewind(const Config& config, State& state, int context) {
  state.position = context;
  for (LayerState& layer : state.layers) {
    if (KVCache* cache = std::get_if<KVCache>(&layer)) {
      cache->length = context;
    } else {
      layer = empty_layer_state(config, LayerType::linear_attention);
    }
  }
}

Run run_steps(const Model& model, const Ops& ops, State& state, int steps) {
  Text text;
  Run run = timed([&] {
    for (int i = 0; i < steps; ++i) read(model, ops, {&text.next, 1}, state, text);
  });
  run.hash = text.hash;
  return run;
}

}  // namespace qwen
