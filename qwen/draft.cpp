#include "qwen/draft.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "qwen/cache.h"

namespace qwen {
namespace {

std::span<const float> row_of(const Tensor2& logits, int t) {
  return {row(logits, t), static_cast<std::size_t>(dim(logits, 1))};
}

// a [A, H] with the rows of b [B, H] behind.
Tensor2 stacked(const Tensor2& a, const Tensor2& b) {
  if (a.size() == 0) return b;
  Tensor2 both = uninit(dim(a, 0) + dim(b, 0), dim(a, 1));
  std::copy_n(a.data(), a.size(), both.data());
  std::copy_n(b.data(), b.size(), both.data() + a.size());
  return both;
}

// The MTP layer and what it remembers of one text.
class MtpDrafter {
 public:
  MtpDrafter(const Model& model, const Ops& ops, const Mtp& mtp, const Sampling& sampling)
      : model_(model), ops_(ops), mtp_(mtp), sampling_(sampling) {}

  // The history is a copy of its own: the drafts are added to it.
  std::vector<Draft> draft(const Tensor2& hidden, std::span<const int> next_ids, int count,
                           History history, std::mt19937_64& generator) {
    if (!next_ids.empty()) {
      hidden_ = stacked(hidden_, hidden);
      next_ids_.insert(next_ids_.end(), next_ids.begin(), next_ids.end());
    }
    const int waiting = static_cast<int>(next_ids_.size());
    // While nothing is drafted, single rows may wait: many cost hardly more than one.
    const bool may_wait = count == 0 && next_ids.size() < 2 && waiting < kWaiting;
    if (waiting == 0 || may_wait) return {};
    Tensor2 state = read_known_rows();

    std::vector<Draft> drafts;
    auto& kv = std::get<KVCache>(memory_);
    const int known = kv.length;
    for (int i = 0; i < count; ++i) {
      if (i > 0) state = mtp_forward(model_, ops_, mtp_, state, {&drafts.back().id, 1}, memory_);
      Distribution q = distribution(row_of(head(model_, ops_, state), 0), sampling_, history);
      const int id = draw(q, uniform(generator));
      add_answer(history, id);
      drafts.push_back({id, std::move(q)});
    }
    truncate(kv, known);
    return drafts;
  }

 private:
  // Moves the memory on by all rows that wait; the result of the last of them, [1, hidden_size].
  Tensor2 read_known_rows() {
    Tensor2 out;
    const int waiting = static_cast<int>(next_ids_.size());
    for (int first = 0; first < waiting; first += kReadAtOnce) {
      const int rows = std::min(kReadAtOnce, waiting - first);
      out = mtp_forward(model_, ops_, mtp_, slice(hidden_, first, rows),
                        std::span<const int>(next_ids_).subspan(first, rows), memory_);
    }
    hidden_ = Tensor2();
    next_ids_.clear();
    return slice(out, dim(out, 0) - 1, 1);
  }

  static constexpr int kWaiting = 64;  // rows that may wait

  const Model& model_;
  const Ops& ops_;
  const Mtp& mtp_;
  const Sampling sampling_;
  LayerState memory_ = empty_mtp_memory();
  Tensor2 hidden_;             // of rows that the layer has not read yet
  std::vector<int> next_ids_;  // and the token after each
};

}  // namespace

Drafter mtp_drafter(const Model& model, const Ops& ops, const Mtp& mtp, const Sampling& sampling) {
  return [layer = MtpDrafter(model, ops, mtp, sampling)](
             const Tensor2& hidden, std::span<const int> next_ids, int count,
             const History& history, std::mt19937_64& generator) mutable {
    return layer.draft(hidden, next_ids, count, history, generator);
  };
}

Distribution excess(const Distribution& p, const Distribution& q) {
  Distribution rest;
  double sum = 0;
  for (const Candidate& own : p) {
    const double more = own.probability - probability(q, own.id);
    if (more <= 0) continue;
    rest.push_back({own.id, more});
    sum += more;
  }
  if (rest.empty()) return p;  // the two are equal but for rounding
  for (Candidate& candidate : rest) candidate.probability /= sum;
  return rest;
}

std::vector<int> verify(const Tensor2& logits, std::span<const Draft> drafts,
                        const Sampling& sampling, History& history, std::mt19937_64& generator) {
  const int count = static_cast<int>(drafts.size());
  if (dim(logits, 0) != count + 1) {
    throw std::invalid_argument("[verify] logits of " + std::to_string(dim(logits, 0)) +
                                " rows, expected one more than the " + std::to_string(count) +
                                " drafts");
  }
  std::vector<int> tokens;
  const auto commit = [&](int id) {
    tokens.push_back(id);
    add_answer(history, id);
  };
  for (int i = 0; i < count; ++i) {
    const auto& [id, q] = drafts[i];
    const Distribution p = distribution(row_of(logits, i), sampling, history);
    if (uniform(generator) * probability(q, id) >= probability(p, id)) {
      commit(draw(excess(p, q), uniform(generator)));
      return tokens;
    }
    commit(id);
  }
  commit(draw(distribution(row_of(logits, count), sampling, history), uniform(generator)));
  return tokens;
}

}  // namespace qwen
