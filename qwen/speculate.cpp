#include "qwen/speculate.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <stdexcept>
#include <string>

#include "qwen/hash.h"
#include "qwen/rollback.h"
#include "qwen/stopwatch.h"

namespace qwen {
namespace {

// One answer under way. Between rounds, the last token of the answer has been chosen and not read.
class Speculation {
 public:
  Speculation(const Model& model, const Ops& ops, const Drafter& drafter, Sequence& sequence,
              const Sampling& sampling, const OnToken& on_token, DraftStats& stats)
      : model_(model),
        ops_(ops),
        drafter_(drafter),
        sequence_(sequence),
        sampling_(sampling),
        on_token_(on_token),
        stats_(stats),
        generator_(sampling.seed),
        recording_ops_(recording_ops(ops, record_)) {}

  // Reads the prompt and chooses the first token.
  void begin(std::span<const int> prompt, int max_tokens) {
    add_prompt(history_, sequence_.ids);
    add_prompt(history_, prompt);
    Tensor2 last = read_prompt(prompt);
    limit_ = answer_limit(model_.config, sequence_.state.position, max_tokens);
    answer_.ending = limit_.ending;
    done_ = limit_.tokens == 0;
    if (!done_) give_out(verify(head(model_, ops_, last), {}, sampling_, history_, generator_));
  }

  // Up to 1 + count tokens: drafts, verdict, and back to what stays.
  void round(int count) {
    count = std::min(count, limit_.tokens - static_cast<int>(answer_.ids.size()) - 1);
    const auto start = Clock::now();
    const std::vector<Draft> drafts = ask(hidden_, next_ids_, count);
    const double drafting = seconds_since(start);

    std::vector<int> ids = {answer_.ids.back()};
    for (const Draft& draft : drafts) ids.push_back(draft.id);
    const int rows = static_cast<int>(ids.size());
    const Share<State> alone{&sequence_.state, rows};
    const Ops& ops = drafts.empty() ? ops_ : recording_ops_;
    Tensor2 hidden = hidden_states(model_, ops, ids, {&alone, 1});
    std::vector<int> tokens =
        verify(head(model_, ops_, hidden), drafts, sampling_, history_, generator_);
    const int accepted = static_cast<int>(tokens.size()) - 1;

    // Row t gave token t; the rows behind the last token given out are drafts that do not stay.
    const int kept = give_out(tokens);
    roll_back(ops_, record_, sequence_.state, sequence_.state.position - (rows - kept));
    sequence_.ids.insert(sequence_.ids.end(), ids.begin(), ids.begin() + kept);
    hidden_ = kept < rows ? slice(hidden, 0, kept) : std::move(hidden);
    note(static_cast<int>(drafts.size()), accepted, drafting, seconds_since(start) - drafting);
  }

  bool done() const { return done_; }
  const Answer& answer() const { return answer_; }

 private:
  // In pieces, as read() does, and with every row shown to the drafter: hidden [1, hidden_size] of
  // the last.
  Tensor2 read_prompt(std::span<const int> prompt) {
    check_tokens(model_.config, prompt, sequence_.state.position);
    const int count = static_cast<int>(prompt.size());
    for (int first = 0; first < count; first += kReadAtOnce) {
      const int rows = std::min(kReadAtOnce, count - first);
      const Share<State> alone{&sequence_.state, rows};
      hidden_ = hidden_states(model_, ops_, prompt.subspan(first, rows), {&alone, 1});
      // The token after the last row is not known yet where the prompt ends.
      const int shown = first + rows < count ? rows : rows - 1;
      ask(slice(hidden_, 0, shown), prompt.subspan(first + 1, shown), 0);
    }
    sequence_.ids.insert(sequence_.ids.end(), prompt.begin(), prompt.end());
    hidden_ = slice(hidden_, dim(hidden_, 0) - 1, 1);
    return hidden_;
  }

  std::vector<Draft> ask(const Tensor2& hidden, std::span<const int> next_ids, int count) {
    if (!drafter_) return {};
    return drafter_(hidden, next_ids, count, history_, generator_);
  }

  // Puts tokens into the answer until one ends it. How many were looked at.
  int give_out(const std::vector<int>& tokens) {
    int looked_at = 0;
    while (!done_ && looked_at < static_cast<int>(tokens.size())) {
      done_ = add_token(model_.config, limit_, tokens[looked_at++], on_token_, answer_);
    }
    next_ids_.assign(tokens.begin(), tokens.begin() + looked_at);
    return looked_at;
  }

  void note(int drafted, int accepted, double drafting, double verifying) {
    if (drafted == 0) {
      ++stats_.plain_steps;
      stats_.seconds.plain += drafting + verifying;
      note_plain_step(stats_.payoff, drafting + verifying);
      return;
    }
    ++stats_.rounds[accepted];
    stats_.seconds.drafts += drafting;
    stats_.seconds.verify += verifying;
    note_round(stats_.payoff, drafting, verifying, accepted);
  }

  const Model& model_;
  const Ops& ops_;
  const Drafter& drafter_;
  Sequence& sequence_;
  const Sampling& sampling_;
  const OnToken& on_token_;
  DraftStats& stats_;
  std::mt19937_64 generator_;
  Record record_;
  const Ops recording_ops_;
  History history_;
  Answer answer_;
  AnswerLimit limit_{};
  bool done_ = false;
  Tensor2 hidden_;             // of the rows read since the drafter was asked last
  std::vector<int> next_ids_;  // and the token after each
};

}  // namespace

int round_count(const DraftStats& stats) {
  return std::accumulate(stats.rounds.begin(), stats.rounds.end(), 0);
}

double mean_accepted(const DraftStats& stats) {
  double accepted = 0;
  for (std::size_t i = 0; i < stats.rounds.size(); ++i) {
    accepted += static_cast<double>(i) * stats.rounds[i];
  }
  return accepted / std::max(1, round_count(stats));
}

Costs mean_costs(const DraftStats& stats) {
  const int steps = std::max(1, stats.plain_steps), rounds = std::max(1, round_count(stats));
  return {stats.seconds.plain / steps, stats.seconds.drafts / rounds,
          stats.seconds.verify / rounds};
}

Answer speculate(const Model& model, const Ops& ops, const Drafter& drafter, int count,
                 Drafting drafting, Sequence& sequence, std::span<const int> prompt,
                 const Sampling& sampling, int max_tokens, const OnToken& on_token,
                 DraftStats& stats) {
  check_sampling(sampling);
  if (count < 0 || max_tokens < 0) {
    throw std::invalid_argument("[speculate] " + std::to_string(count) + " drafts, " +
                                std::to_string(max_tokens) +
                                " tokens at most: expected numbers "
                                "from 0");
  }
  count = std::min(count, max_tokens);  // more never have room in an answer
  stats.rounds.resize(std::max<std::size_t>(stats.rounds.size(), count + 1));
  Speculation text(model, ops, drafter, sequence, sampling, on_token, stats);
  text.begin(prompt, max_tokens);
  while (!text.done()) {
    const bool now = drafting == Drafting::always || drafts_now(stats.payoff);
    text.round(now ? count : 0);
  }
  return text.answer();
}

std::uint64_t text_hash(std::span<const int> ids) {
  std::uint64_t hash = kHashOfNothing;
  for (const int id : ids) {
    for (int shift = 0; shift < 32; shift += 8) {
      hash = hash_with(hash, static_cast<std::uint32_t>(id) >> shift & 0xFF);
    }
  }
  return hash;
}

void expect_same_text(std::span<const int> plain, std::span<const int> drafted, int count) {
  if (text_hash(plain) == text_hash(drafted)) return;
  char hashes[64];
  std::snprintf(hashes, sizeof hashes, "%016llx, expected %016llx",
                static_cast<unsigned long long>(text_hash(drafted)),
                static_cast<unsigned long long>(text_hash(plain)));
  throw std::runtime_error("[speculate] with " + std::to_string(count) +
                           " drafts a round the text's hash is " + hashes +
                           " of plain decoding: a rollback is wrong");
}

}  // namespace qwen
