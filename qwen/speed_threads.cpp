#include "qwen/speed_threads.h"

#include <algorithm>
#include <set>
#include <thread>

#include "qwen/speed_task.h"
#include "qwen/tables.h"
#include "qwen/task.h"

namespace qwen {
namespace {

std::vector<Row> rows_with(const Speed& speed, const std::string& metric) {
  std::vector<Row> rows = rows_of(speed, "threads");
  std::erase_if(rows, [&](const Row& row) { return row.metric != metric; });
  return rows;
}

// The smallest team that is within 3 % of the fastest: less is no difference.
const Row& best_of(const std::vector<Row>& rows) {
  double fastest = 0;
  for (const Row& row : rows) fastest = std::max(fastest, row.value);
  return *std::find_if(rows.begin(), rows.end(),
                       [&](const Row& row) { return row.value > 0.97 * fastest; });
}

std::string threads_text(int threads) {
  return std::to_string(threads) + (threads == 1 ? " thread" : " threads");
}

// Why a team decodes no faster than the best one.
std::string reason(const Speed& speed, int threads, int best) {
  if (threads > speed.threads) return "since they wait for each other's cores";
  const double share = speed.limits.at(threads).bandwidth / speed.limits.at(best).bandwidth;
  if (threads > best) return "since the memory is busy already";
  if (share > 0.95) return "though they read as fast: the rest is work between the reads";
  return "since they read " + percent(share) + " of what " + threads_text(best) + " read";
}

std::string conclusion(const Speed& speed) {
  const std::vector<Row> decode = rows_with(speed, "decode"), prefill = rows_with(speed, "prefill");
  const Row& best = best_of(decode);
  std::string text =
      "For decoding " + threads_text(best.threads) + (best.threads == 1 ? " is best" : " are best");
  for (const Row& row : decode) {
    if (row.threads == best.threads) continue;
    const double loss = 1 - row.value / best.value;
    text += "; " + threads_text(row.threads);
    if (loss < 0.03) {
      text += row.threads == 1 ? " does no better" : " do no better";
    } else {
      text += (row.threads == 1 ? " loses " : " lose ") + percent(loss) + ", " +
              reason(speed, row.threads, best.threads);
    }
  }
  text += ". A prompt is read fastest by " + threads_text(best_of(prefill).threads);
  text += same_output(decode) ? ". All teams write the same tokens."
                              : ". THE TEAMS WRITE DIFFERENT TOKENS.";
  return text + " Choose --threads " + std::to_string(best.threads) + ".";
}

}  // namespace

std::vector<int> teams_to_try(int cores, int logical_cpus) {
  std::set<int> teams = {cores, logical_cpus, 2 * cores};
  for (int n = 1; n < cores; n *= 2) teams.insert(n);
  return {teams.begin(), teams.end()};
}

namespace {

std::vector<int> teams_of(const Speed& speed) {
  return teams_to_try(speed.threads, static_cast<int>(std::thread::hardware_concurrency()));
}

// All teams in this process.
void measure_here(Speed& speed) {
  const DType dtype = speed.source.stored;
  const Model model = open_model(speed.source, dtype);
  const Ops ops = fast_ops();
  const std::vector<int> prompt = sample_ids(model.config, speed.prompt);
  const std::vector<int> teams = teams_of(speed);

  std::vector<Contender> contenders;
  for (const int threads : teams) {
    contenders.push_back(on_team(threads, threads_text(threads),
                                 [&] { return run_task(model, ops, prompt, speed.steps); }));
    contenders.push_back(probe(speed, threads));
  }
  const auto runs = measure("threads", contenders, speed.rounds);
  for (std::size_t i = 0; i < teams.size(); ++i) note_limits(speed, teams[i], runs[2 * i + 1]);
  for (std::size_t i = 0; i < teams.size(); ++i) {
    if (runs[2 * i].empty() || runs[2 * i + 1].empty()) continue;
    add_task_rows(speed, "threads", dtype, teams[i], runs[2 * i]);
  }
}

}  // namespace

std::string threads_part(Speed& speed) {
  if (speed.full) {
    add_process_rows(speed, "threads",
                     all_configurations({speed.source.asked}, {format(speed.source.stored).name},
                                        {"cpu"}, teams_of(speed)));
  } else {
    measure_here(speed);
  }
  return rows_of(speed, "threads").empty() ? "" : conclusion(speed);
}

}  // namespace qwen
