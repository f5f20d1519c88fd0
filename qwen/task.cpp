#include "qwen/task.h"

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

Run run_task(const Model& model, const Ops& ops, const std::vector<int>& prompt, int steps) {
  State state = empty_state(model.config);
  std::uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
  int next = 0;
  const auto read = [&](std::span<const int> ids) {
    if (interrupted()) throw Interrupted{};
    next = argmax(forward(model, ops, ids, state));
    hash = (hash ^ static_cast<std::uint64_t>(next)) * 0x100000001B3;
  };
  const Run prefill = timed([&] { read(prompt); });
  const Run decode = timed([&] {
    for (int i = 0; i < steps; ++i) read({&next, 1});
  });
  return {{prefill.seconds[0], decode.seconds[0]}, hash};
}

}  // namespace qwen
