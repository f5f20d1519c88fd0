#include "qwen/batch_speed.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "qwen/stopwatch.h"

namespace qwen {
namespace {

double seconds_of_step(const Model& model, const Ops& ops, Batch& batch,
                       const std::vector<int>& rows) {
  const auto start = Clock::now();
  read_rows(model, ops, batch, rows);
  return seconds_since(start);
}

// Everybody who has nothing unread gets a token, the same again.
void write_on(Batch& batch) {
  for (Running& running : batch) {
    if (unread(running) == 0) running.ids.push_back(running.ids.back());
  }
}

}  // namespace

Batch writers(const Model& model, const Ops& ops, int count, int length) {
  Batch batch;
  for (int i = 0; i < count; ++i) {
    Request request;
    for (int t = 0; t < length; ++t) {
      request.prompt.push_back((7 * i + 13 * t * t + 5) % model.config.vocab_size);
    }
    batch.push_back(start(model.config, i, std::move(request)));
  }
  read_rows(model, ops, batch, std::vector<int>(count, length));
  write_on(batch);
  return batch;
}

double write_seconds(const Model& model, const Ops& ops, int count, int steps) {
  constexpr int kLength = 16;
  Batch batch = writers(model, ops, count, kLength);
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < steps; ++i) {
    least = std::min(least, seconds_of_step(model, ops, batch, std::vector<int>(count, 1)));
    write_on(batch);
  }
  return least;
}

Joining join_seconds(const Model& model, const Ops& ops, int count, int length, int max_rows) {
  constexpr int kLength = 16;
  Batch batch = writers(model, ops, count, kLength);
  Request request;
  request.prompt.assign(length, 0);
  batch.push_back(start(model.config, count, std::move(request)));
  Joining joining;
  while (unread(batch.back()) > 0) {
    const double seconds = seconds_of_step(model, ops, batch, share_rows(batch, max_rows));
    joining.longest_seconds = std::max(joining.longest_seconds, seconds);
    joining.seconds += seconds;
    ++joining.steps;
    if (unread(batch.back()) > 0) write_on(batch);
  }
  return joining;
}

}  // namespace qwen
