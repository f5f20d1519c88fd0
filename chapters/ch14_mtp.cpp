// Chapter 14. May a model read several tokens it has not written yet?
//
// New: mtp, a layer that guesses one token further; draft, which guesses and judges; rollback,
// which takes back what was guessed wrong; payoff and speculate, the loop that does it while it
// pays. The program shows the guesses round by round, compares texts and speed with 0 to 4 drafts,
// and says what acceptance this machine would need. A text that differs from the plain one is an
// error.
#include <algorithm>
#include <cstdio>

#include "qwen/conversation.h"
#include "qwen/find_template.h"
#include "qwen/options.h"
#include "qwen/speculate.h"
#include "qwen/stopwatch.h"
#include "qwen/tables.h"

using namespace qwen;

namespace {

const std::vector<std::string> kQuestions = {
    "Repeat: red hat violin goat spoon grey",
    "Nora has the drum. Ida has the mirror. Goran has the map. Carl has the key. "
    "What does Goran have?",
    "Mona has 71 coins. Karl has 58 coins. Emil has 30 coins. How many coins does Karl have?",
    "72 + 86 = ?",
    "How many houses are there in Saltwick?",
    "Which colour does the lamp have?",
    "What is the favourite dish of Jonas?",
    "Count from 12 to 18.",
};
constexpr int kMostDrafts = 4;

struct Session {
  Model model;
  Mtp mtp;
  Tokenizer tokenizer;
  Ops ops = fast_ops();
  std::vector<std::vector<int>> prompts;
  int max_new = 0;
};

std::vector<int> prompt_for(const Session& at, const ChatTemplate& form, const std::string& text) {
  return render(form, at.tokenizer, {{{Role::user, text}}, {}, false}).ids;
}

// ---- round by round ----

// Drafts as `inner` does, and keeps the drafts of every round.
Drafter watched(const Drafter& inner, std::vector<std::vector<Draft>>& rounds) {
  return [&rounds, inner](const Tensor2& hidden, std::span<const int> next_ids, int count,
                          const History& history, std::mt19937_64& generator) {
    auto drafts = inner(hidden, next_ids, count, history, generator);
    if (!drafts.empty()) rounds.push_back(drafts);
    return drafts;
  };
}

// Tokens in quotation marks, line breaks as \n.
std::string quoted(const Tokenizer& tokenizer, std::span<const int> ids) {
  std::string text;
  for (const int id : ids) {
    text += text.empty() ? "'" : " '";
    for (const char c : tokenizer.tokens.at(id)) text += c == '\n' ? "\\n" : std::string(1, c);
    text += "'";
  }
  return text;
}

void show_rounds(const Session& at) {
  constexpr int kDrafts = 3;
  std::printf("1. %s\n", kQuestions[0].c_str());
  std::vector<std::vector<Draft>> rounds;
  const Drafter drafter = watched(mtp_drafter(at.model, at.ops, at.mtp, {}), rounds);
  Sequence sequence = empty_sequence(at.model.config);
  DraftStats stats;
  const Answer answer = speculate(at.model, at.ops, drafter, kDrafts, Drafting::always, sequence,
                                  at.prompts[0], {}, at.max_new, {}, stats);
  std::vector<int> text = answer.ids;
  if (answer.end_token >= 0) text.push_back(answer.end_token);
  std::printf("   %s is written; then, with %d drafts a round:\n",
              quoted(at.tokenizer, std::span(text).first(1)).c_str(), kDrafts);
  std::printf("   %-32s %-16s rejected\n", "accepted", "its own");
  std::span<const int> rest = std::span<const int>(text).subspan(1);
  for (const std::vector<Draft>& drafts : rounds) {
    std::vector<int> ids;
    for (const Draft& draft : drafts) ids.push_back(draft.id);
    const auto parted = std::mismatch(ids.begin(), ids.end(), rest.begin(), rest.end());
    const std::size_t accepted = parted.first - ids.begin();
    const std::size_t own = accepted < rest.size() ? 1 : 0;  // none behind an accepted end
    std::printf("   %-32s %-16s %s\n", quoted(at.tokenizer, rest.first(accepted)).c_str(),
                quoted(at.tokenizer, rest.subspan(accepted, own)).c_str(),
                quoted(at.tokenizer, std::span(ids).subspan(accepted)).c_str());
    rest = rest.subspan(accepted + own);
  }
}

// ---- all questions ----

struct Result {
  std::vector<int> text;  // of all answers
  DraftStats stats;
  double seconds = 0;  // from each answer's first token to its last
};

Result answer_all(const Session& at, int count, Drafting drafting, const Sampling& sampling) {
  Result result;
  for (const std::vector<int>& prompt : at.prompts) {
    Sequence sequence = empty_sequence(at.model.config);
    Clock::time_point first;
    const OnToken clock = [&, started = false](int) mutable {
      if (!started) first = Clock::now();
      return started = true;
    };
    const Answer answer =
        speculate(at.model, at.ops, mtp_drafter(at.model, at.ops, at.mtp, sampling), count,
                  drafting, sequence, prompt, sampling, at.max_new, clock, result.stats);
    if (!answer.ids.empty()) {
      result.seconds += seconds_since(first);
    }
    result.text.insert(result.text.end(), answer.ids.begin(), answer.ids.end());
  }
  return result;
}

// The fastest of several times, where that does not take long: all write the same.
Result fastest(const Session& at, int count, Drafting drafting) {
  constexpr int kTimes = 5;
  constexpr double kSeconds = 1;
  Result best = answer_all(at, count, drafting, {});
  double spent = best.seconds;
  for (int i = 1; i < kTimes && spent < kSeconds; ++i) {
    Result again = answer_all(at, count, drafting, {});
    spent += again.seconds;
    if (again.seconds < best.seconds) best = std::move(again);
  }
  return best;
}

// How many rounds had 0, 1, 2 … drafts accepted.
std::string spread(const DraftStats& stats) {
  std::string text;
  for (const int count : stats.rounds) text += (text.empty() ? "" : " ") + std::to_string(count);
  return text;
}

void show_texts(const std::vector<Result>& results) {
  std::printf("2. %zu answers, the likeliest token each time\n", kQuestions.size());
  std::printf("   drafts  tokens   calls  accepted a round  with 0, 1, 2 … accepted  hash\n");
  for (int count = 0; count <= kMostDrafts; ++count) {
    const Result& result = results[count];
    expect_same_text(results[0].text, result.text, count);
    std::printf("   %6d %7zu %7d %17.2f  %-23s  %016llx\n", count, result.text.size(),
                count == 0 ? result.stats.plain_steps : round_count(result.stats),
                mean_accepted(result.stats), count == 0 ? "-" : spread(result.stats).c_str(),
                static_cast<unsigned long long>(text_hash(result.text)));
  }
}

double rate(const Result& result) {
  return static_cast<double>(result.text.size()) / result.seconds;
}

void show_speed(const std::vector<Result>& results) {
  const double plain = mean_costs(results[0].stats).plain;
  std::printf("3. does it pay?\n");
  std::printf("~  a plain step takes %.3f ms: %.0f tokens/s\n", 1e3 * plain, rate(results[0]));
  std::printf(
      "   drafts  drafting  verifying   break-even   of each  accepted     speed  measured\n");
  for (int count = 1; count <= kMostDrafts; ++count) {
    const DraftStats& stats = results[count].stats;
    Costs costs = mean_costs(stats);
    costs.plain = plain;
    const double needed = break_even(costs), accepted = mean_accepted(stats);
    std::printf("~  %6d  %5.3f ms   %5.3f ms  %11.2f  %6.0f %%  %8.2f  %8.2f  %8.2f\n", count,
                1e3 * costs.drafts, 1e3 * costs.verify, needed,
                100 * acceptance_needed(needed, count), accepted, speedup(costs, accepted),
                rate(results[count]) / rate(results[0]));
  }
}

void show_switch(const Session& at, const Result& plain) {
  std::printf("4. drafting while it pays\n");
  for (const int count : {1, 3}) {
    const Result result = fastest(at, count, Drafting::while_it_pays);
    expect_same_text(plain.text, result.text, count);
    std::printf("~  %d drafts: %d rounds and %d plain steps, %.2f times as fast; the same text\n",
                count, round_count(result.stats), result.stats.plain_steps,
                rate(result) / rate(plain));
  }
}

void show_drawn(const Session& at) {
  Sampling sampling;
  sampling.temperature = 0.7;
  sampling.top_p = 0.8;
  std::printf("5. tokens drawn, at temperature %.1f and top-p %.1f\n", sampling.temperature,
              sampling.top_p);
  for (int count = 1; count <= kMostDrafts; ++count) {
    const DraftStats stats = answer_all(at, count, Drafting::always, sampling).stats;
    std::printf("~  %d drafts: %.2f accepted a round\n", count, mean_accepted(stats));
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Chapter 14: drafting with the MTP layer");
  ModelOptions options;
  Session at;
  at.max_new = 64;
  add_model_options(app, options);
  add_integer(app, "--max-new", at.max_new, 1, 1 << 20, "tokens of an answer at most");
  return run_program(app, argc, argv, [&] {
    at.model = open_model(options);
    at.mtp = load_mtp(at.model.config, open_checkpoint(options.model), chosen_dtype(options));
    at.tokenizer = load_tokenizer(options.model);
    at.model.config.eos_token_id = end_tokens(at.model.config, at.tokenizer);
    const FoundTemplate found = find_template(options.model, at.model.config);
    for (const std::string& question : kQuestions) {
      at.prompts.push_back(prompt_for(at, found.form, question));
    }
    show_rounds(at);

    std::vector<Result> results;
    for (int count = 0; count <= kMostDrafts; ++count) {
      results.push_back(fastest(at, count, Drafting::always));
    }
    show_texts(results);
    show_speed(results);
    show_switch(at, results[0]);
    show_drawn(at);
  });
}
