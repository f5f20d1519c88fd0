#include "qwen/speed_chunk.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "qwen/chunk.h"
#include "qwen/deltanet.h"
#include "qwen/hash.h"
#include "qwen/random_model.h"

namespace qwen {
namespace {

constexpr int kChunk = 64;
constexpr int kLengths[] = {64, 128, 256, 512, 1024, 2048, 4096};

// What one layer's delta rule is given: keys and queries of length 1, decays of 0.5 … 0.9995.
struct Inputs {
  Qkv qkv;
  Tensor2 g, beta;
  std::vector<int> key_head;
};

Inputs random_inputs(const Config& c, int T) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform;
  const int Hk = c.linear_num_key_heads, Dk = c.linear_key_head_dim;
  const int Hv = c.linear_num_value_heads, Dv = c.linear_value_head_dim;
  Inputs in{
      {uninit(T, Hk, Dk), uninit(T, Hk, Dk), uninit(T, Hv, Dv)}, uninit(T, Hv), uninit(T, Hv), {}};
  const float length = std::sqrt(static_cast<float>(Dk));
  for (float& x : in.qkv.q) x = normal(random) / (length * length);
  for (float& x : in.qkv.k) x = normal(random) / length;
  for (float& x : in.qkv.v) x = normal(random);
  for (float& x : in.g) x = -std::exp(-7.6f + 7.2f * uniform(random));
  for (float& x : in.beta) x = uniform(random);
  for (int h = 0; h < Hv; ++h) in.key_head.push_back(h / (Hv / Hk));
  return in;
}

std::uint64_t hash_of(const Tensor3& x) {
  std::uint64_t hash = kHashOfNothing;
  for (const float value : x) hash = hash_with(hash, std::bit_cast<std::uint32_t>(value));
  return hash;
}

enum class Rule { plain, blocked, chunked };
constexpr const char* kMetrics[] = {"recurrent_plain", "recurrent_blocked", "chunked"};

Run run_rule(Rule rule, const Inputs& in) {
  Tensor3 S = zeros(dim(in.g, 1), dim(in.qkv.k, 2), dim(in.qkv.v, 2)), o;
  Run run = timed([&] {
    if (rule == Rule::plain) o = plain::delta_rule(in.qkv, in.g, in.beta, in.key_head, S);
    if (rule == Rule::blocked) o = fast::delta_rule(in.qkv, in.g, in.beta, in.key_head, S);
    if (rule == Rule::chunked) {
      o = fast::chunk_delta_rule(in.qkv, in.g, in.beta, in.key_head, S, kChunk);
    }
  });
  run.hash = hash_of(o);
  return run;
}

struct Case {
  Rule rule;
  int threads;
  int T;
};

std::vector<int> teams(const Speed& speed) {
  if (speed.threads == 1) return {1};
  return {1, speed.threads};
}

std::vector<Case> cases(const Speed& speed) {
  std::vector<Case> all;
  for (const int T : kLengths) {
    // The plain loops know one thread only, and take their time.
    if (speed.full || T <= 512) all.push_back({Rule::plain, 1, T});
    for (const int threads : teams(speed)) {
      all.push_back({Rule::blocked, threads, T});
      all.push_back({Rule::chunked, threads, T});
    }
  }
  return all;
}

double multiply_adds_of(const Config& c, const Case& which) {
  const int Dk = c.linear_key_head_dim, Dv = c.linear_value_head_dim;
  const double each = which.rule == Rule::chunked ? chunked_multiply_adds(Dk, Dv, kChunk)
                                                  : recurrent_multiply_adds(Dk, Dv);
  return each * c.linear_num_value_heads * which.T;
}

const Row* find(const std::vector<Row>& rows, Rule rule, int threads, int T) {
  for (const Row& row : rows) {
    if (row.metric == kMetrics[static_cast<int>(rule)] && row.threads == threads &&
        row.tokens == T) {
      return &row;
    }
  }
  return nullptr;
}

void add_row(Speed& speed, const Config& config, const Case& which, const std::vector<Run>& runs) {
  if (runs.empty()) return;
  Row row;
  row.part = "chunk";
  row.metric = kMetrics[static_cast<int>(which.rule)];
  row.model = "one layer";
  row.dtype = "f32";
  row.threads = which.threads;
  row.tokens = which.T;
  row.unit = "ms";
  const Summary times = summarise(runs);
  set_times(row, times);
  row.output_hash = times.hash;
  row.limit = 1e3 * 2 * multiply_adds_of(config, which) / speed.limits.at(which.threads).fma;
  if (which.rule == Rule::chunked) {
    if (const Row* blocked = find(speed.rows, Rule::blocked, which.threads, which.T)) {
      const Case recurrent{Rule::blocked, which.threads, which.T};
      row.predicted =
          blocked->value * multiply_adds_of(config, which) / multiply_adds_of(config, recurrent);
    }
  }
  speed.rows.push_back(row);
}

// The shortest text from which on chunks win, as a sentence.
std::string crossing(const std::vector<Row>& rows, int threads) {
  int from = 0;
  for (const int T : kLengths) {
    const Row* blocked = find(rows, Rule::blocked, threads, T);
    const Row* chunked = find(rows, Rule::chunked, threads, T);
    if (!blocked || !chunked) continue;
    if (chunked->value >= blocked->value) from = 0;
    if (chunked->value < blocked->value && from == 0) from = T;
  }
  return from == 0 ? "chunks never win" : "chunks win from " + std::to_string(from) + " tokens on";
}

std::string conclusion(const Speed& speed, const Config& config) {
  const std::vector<Row> rows = rows_of(speed, "chunk");
  const int Dk = config.linear_key_head_dim, Dv = config.linear_value_head_dim;
  const Row* plain = find(rows, Rule::plain, 1, 512);
  const Row* blocked = find(rows, Rule::blocked, 1, 512);
  const Row* chunked = find(rows, Rule::chunked, 1, 512);
  if (!plain || !blocked || !chunked) return "";
  std::string text =
      "512 tokens on one thread: plain " + figure(plain->value) + " ms, in blocks " +
      figure(blocked->value) + " ms (" + figure(plain->value / blocked->value) +
      " times as fast), in chunks " + figure(chunked->value) + " ms. By counts, chunks need " +
      figure(chunked_multiply_adds(Dk, Dv, kChunk) / recurrent_multiply_adds(Dk, Dv)) +
      " times the multiply-adds of the recurrent rule; they take " +
      figure(chunked->value / blocked->value) + " times as long. With 1 thread " +
      crossing(rows, 1);
  if (speed.threads > 1) {
    text += ", with " + std::to_string(speed.threads) + " " + crossing(rows, speed.threads);
  }
  return text + ".";
}

}  // namespace

std::string chunk_part(Speed& speed) {
  const bool has_deltanet = speed.source.config.linear_num_value_heads > 0;
  const Config config = has_deltanet ? speed.source.config : named_shape("qwen3.5-0.8b");
  std::map<int, Inputs> inputs;
  for (const int T : kLengths) inputs.emplace(T, random_inputs(config, T));

  const std::vector<Case> all = cases(speed);
  std::vector<Contender> contenders;
  for (const Case& which : all) {
    const std::string name = std::string(kMetrics[static_cast<int>(which.rule)]) + ", " +
                             std::to_string(which.T) + " tokens";
    contenders.push_back(on_team(which.threads, name, [&in = inputs.at(which.T), which] {
      return run_rule(which.rule, in);
    }));
  }
  for (const int threads : teams(speed)) contenders.push_back(probe(speed, threads));
  const auto runs = measure("chunk", contenders, speed.rounds);
  for (std::size_t i = all.size(); i < runs.size(); ++i) {
    note_limits(speed, teams(speed)[i - all.size()], runs[i]);
  }
  for (std::size_t i = 0; i < all.size(); ++i) add_row(speed, config, all[i], runs[i]);
  return conclusion(speed, config);
}

}  // namespace qwen
