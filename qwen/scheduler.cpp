#include "qwen/scheduler.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "qwen/counted.h"

namespace qwen {
namespace {

// The first in the queue goes first. One that has to wait for room holds up those behind it, even
// smaller ones: they could keep it waiting for ever.
void admit(const Config& config, Scheduler& scheduler) {
  const BatchLimits& limits = scheduler.limits;
  std::size_t held = bytes_held(scheduler.batch);
  while (!scheduler.waiting.empty() &&
         static_cast<int>(scheduler.batch.size()) < limits.sequences) {
    Waiting& next = scheduler.waiting.front();
    held += bytes_for(config, tokens_at_most(config, next.request));
    if (held > limits.bytes) return;
    scheduler.batch.push_back(start(config, next.number, std::move(next.request)));
    scheduler.waiting.pop_front();
  }
}

}  // namespace

void check_limits(const BatchLimits& limits) {
  if (limits.sequences < 1) {
    throw std::invalid_argument("[scheduler] " + std::to_string(limits.sequences) +
                                " sequences at once, expected at least 1");
  }
  if (limits.rows < limits.sequences) {
    throw std::invalid_argument("[scheduler] " + std::to_string(limits.rows) +
                                " rows a step for up to " + std::to_string(limits.sequences) +
                                " sequences: each needs one; allow more rows or fewer sequences");
  }
}

void submit(const Config& config, Scheduler& scheduler, int number, Request request) {
  check_request(config, request);
  const int tokens = tokens_at_most(config, request);
  const std::size_t bytes = bytes_for(config, tokens);
  if (bytes > scheduler.limits.bytes) {
    throw std::invalid_argument(
        "[scheduler] " + counted(request.prompt.size(), "token") + " of prompt and " +
        std::to_string(request.max_tokens) + " of answer take " + std::to_string(bytes) +
        " bytes of state, and all sequences together may hold " +
        std::to_string(scheduler.limits.bytes) + ": ask for fewer tokens or allow more memory");
  }
  scheduler.waiting.push_back({number, std::move(request)});
}

std::vector<Running> step(const Model& model, const Ops& ops, Scheduler& scheduler) {
  admit(model.config, scheduler);
  if (scheduler.batch.empty()) return {};
  return step(model, ops, scheduler.batch, scheduler.limits.rows);
}

bool busy(const Scheduler& scheduler) {
  return !scheduler.waiting.empty() || !scheduler.batch.empty();
}

std::size_t bytes_held(const Batch& batch) {
  std::size_t bytes = 0;
  for (const Running& running : batch) bytes += bytes_held(running.state);
  return bytes;
}

}  // namespace qwen
