#include "qwen/speed_mtp.h"

#include <cmath>

#include "qwen/interrupt.h"
#include "qwen/load.h"
#include "qwen/random_model.h"
#include "qwen/speculate.h"
#include "qwen/stopwatch.h"
#include "qwen/tables.h"
#include "qwen/task.h"
#include "qwen/tokenizer.h"

namespace qwen {
namespace {

constexpr int kMostDrafts = 4;
constexpr double kAcceptances[] = {0.5, 0.7, 0.9};

struct Drafted {
  Model model;
  Mtp mtp;
  std::vector<int> prompt;
};

// How often drafts are accepted depends on the text, so a real model gets one.
Drafted open_drafted(const Speed& speed) {
  constexpr const char* kPrompt = "The most important thing about rivers is";
  constexpr int kRandomTokens = 16;
  const ModelSource& source = speed.source;
  Drafted drafted;
  if (source.path.empty()) {
    const RandomModel random = random_model(source.config, source.stored);
    drafted = {random.model, load_mtp(source.config, checkpoint_of(random)),
               sample_ids(source.config, kRandomTokens)};
  } else {
    drafted = {load_model(source.path, source.stored),
               load_mtp(source.config, open_checkpoint(source.path), source.stored),
               encode(load_tokenizer(source.path), kPrompt)};
  }
  drafted.model.config.eos_token_id.clear();  // an end of text ends nothing here
  return drafted;
}

// Writes `tokens` tokens, with so many drafts a round. Seconds from the first token to the last, of
// the whole; of a round's drafts and of its verification, or of a plain step.
Run write(const Drafted& drafted, const Ops& ops, int drafts, int tokens, DraftStats& stats) {
  Sequence sequence = empty_sequence(drafted.model.config);
  const Sampling greedy;
  const Drafter drafter =
      drafts > 0 ? mtp_drafter(drafted.model, ops, drafted.mtp, greedy) : Drafter{};
  Clock::time_point start;
  int written = 0;
  // What ends the text is the count: a limit in advance would shorten the last rounds.
  const OnToken count = [&](int) {
    if (++written == 1) start = Clock::now();
    return written < tokens && !interrupted();
  };
  stats = {};
  const Answer answer = speculate(drafted.model, ops, drafter, drafts, Drafting::always, sequence,
                                  drafted.prompt, greedy, tokens + kMostDrafts + 1, count, stats);
  const double seconds = seconds_since(start);
  if (interrupted()) throw Interrupted{};
  const Costs each = mean_costs(stats);
  if (drafts == 0) return {{seconds, each.plain}, text_hash(answer.ids)};
  return {{seconds, each.drafts, each.verify}, text_hash(answer.ids)};
}

// "decode_2_drafts"
std::string metric(const std::string& what, int drafts) {
  if (drafts == 0) return what;
  return what + "_" + std::to_string(drafts) + (drafts == 1 ? "_draft" : "_drafts");
}

// What was measured with so many drafts; then what other texts would get.
void add_rows(Speed& speed, int drafts, int tokens, const DraftStats& stats,
              const std::vector<Run>& runs) {
  if (runs.empty()) return;
  const DType dtype = speed.source.stored;
  const Limits& limits = speed.limits.at(speed.threads);
  const OperatorCosts costs = round_costs(speed.source.config, dtype, drafts, tokens / 2);
  const double round_limit = least_seconds(total(costs), dtype, best_limits(speed));
  const double round_predicted = predicted_seconds(costs, dtype, limits);
  const double accepted = mean_accepted(stats);

  Row decode = new_row(speed, "mtp", metric("decode", drafts), dtype, "tok/s");
  decode.tokens = tokens - 1;
  const Summary times = summarise(runs);
  set_times(decode, times, tokens - 1);
  decode.output_hash = times.hash;
  decode.limit = (1 + accepted) / round_limit;
  decode.predicted = (1 + accepted) / round_predicted;
  speed.rows.push_back(decode);
  if (drafts == 0) return;

  const double draft = summarise(runs, 1).min, verify = summarise(runs, 2).min;
  const auto add = [&](const std::string& what, double value, const std::string& unit) -> Row& {
    Row row = new_row(speed, "mtp", metric(what, drafts), dtype, unit);
    row.value = value;
    speed.rows.push_back(row);
    return speed.rows.back();
  };
  add("accepted", accepted, "a round");
  Row& round = add("round", 1e3 * (draft + verify), "ms");
  round.limit = 1e3 * round_limit;
  round.predicted = 1e3 * round_predicted;
  for (const double acceptance : kAcceptances) {
    const double all = tokens_of_round(acceptance, drafts);
    Row& row = add("if_" + std::to_string(std::lround(100 * acceptance)) + "_percent",
                   all / (draft + verify), "tok/s");
    row.limit = all / round_limit;
    row.predicted = all / round_predicted;
  }
}

std::string conclusion(const Speed& speed) {
  const std::vector<Row> rows = rows_of(speed, "mtp");
  const Row* plain = find_row(rows, "decode", speed.threads);
  if (!plain) return "";
  std::string text;
  const Row* best = plain;
  int best_count = 0;
  for (int drafts = 1; drafts <= kMostDrafts; ++drafts) {
    const Row* round = find_row(rows, metric("round", drafts), speed.threads);
    const Row* decode = find_row(rows, metric("decode", drafts), speed.threads);
    if (!round || !decode) continue;
    const double steps = round->value / 1e3 * plain->value;
    const double needed = acceptance_needed(steps - 1, drafts);
    text += (text.empty() ? "A round of " : "; of ") + std::to_string(drafts) +
            (drafts == 1 ? " draft" : " drafts") + " takes as long as " + figure(steps) +
            " plain steps";
    text += needed <= 1 ? " and pays where more than " + percent(needed) + " are accepted"
                        : " and cannot pay";
    if (decode->value > best->value) {
      best = decode;
      best_count = drafts;
    }
  }
  if (text.empty()) return "";
  text += same_output(rows) ? ". The text is the same with and without. "
                            : ". THE TEXT IS ANOTHER WITH DRAFTS. ";
  if (speed.source.path.empty()) {
    return text +
           "How many are accepted, only a trained model can tell: guesses of random weights "
           "are right by accident.";
  }
  if (best_count == 0) return text + "On this text plain decoding is fastest.";
  return text + "On this text " + std::to_string(best_count) +
         (best_count == 1 ? " draft" : " drafts") +
         " a round are best: " + figure(best->value / plain->value) +
         " times the speed of plain decoding.";
}

}  // namespace

double tokens_of_round(double acceptance, int drafts) {
  double tokens = 1;
  for (int i = 1; i <= drafts; ++i) tokens += std::pow(acceptance, i);
  return tokens;
}

std::string mtp_part(Speed& speed) {
  if (speed.source.config.mtp_num_hidden_layers == 0) return "This model has no MTP layer.";
  const int tokens = speed.full ? 64 : 7;
  const Drafted drafted = open_drafted(speed);
  const Ops ops = fast_ops();
  std::vector<DraftStats> stats(kMostDrafts + 1);
  std::vector<Contender> contenders = {probe(speed, speed.threads)};
  for (int drafts = 0; drafts <= kMostDrafts; ++drafts) {
    contenders.push_back(on_team(speed.threads, metric("decode", drafts), [&, drafts] {
      return write(drafted, ops, drafts, tokens, stats[static_cast<std::size_t>(drafts)]);
    }));
  }
  const auto runs = measure("mtp", contenders, speed.rounds);
  note_limits(speed, speed.threads, runs[0]);
  for (int drafts = 0; drafts <= kMostDrafts; ++drafts) {
    const auto i = static_cast<std::size_t>(drafts);
    add_rows(speed, drafts, tokens, stats[i], runs[i + 1]);
  }
  return conclusion(speed);
}

}  // namespace qwen
