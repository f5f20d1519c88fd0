// The parts of the speed chapter, on models so small that their times mean nothing: what is counted
// must be right, what must agree must agree, and every row must say what it is about.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "qwen/parallel.h"
#include "qwen/random_model.h"
#include "qwen/speed_batch.h"
#include "qwen/speed_context.h"
#include "qwen/speed_mtp.h"
#include "qwen/speed_ops.h"
#include "qwen/speed_pool.h"
#include "qwen/tables.h"
#include "qwen/task.h"
#include "tests/support.h"

using namespace qwen;

namespace {

const Config& tiny() {
  static const Config config = named_shape("tiny");
  return config;
}

Speed small_speed() {
  Speed speed;
  speed.source.name = "tiny";
  speed.source.config = tiny();
  speed.threads = 2;
  speed.prompt = 13;
  speed.steps = 3;
  speed.rounds = {1};
  speed.block = ReadBlock(3 << 20);
  return speed;
}

// What every part's rows have in common.
std::vector<Row> checked_rows(const Speed& speed, const std::string& part) {
  const std::vector<Row> rows = rows_of(speed, part);
  CHECK(rows.size() == speed.rows.size());
  for (const Row& row : rows) {
    CAPTURE(row.metric);
    CHECK(!row.model.empty());
    CHECK(row.dtype == (part == "pool" ? "f32" : "bf16"));
    CHECK(row.threads == 2);
    CHECK(!row.unit.empty());
    CHECK(std::isfinite(row.value));
    CHECK((!row.limit || *row.limit > 0));
    CHECK((!row.predicted || *row.predicted > 0));
  }
  return rows;
}

std::vector<Row> with_metric(const std::vector<Row>& rows, const std::string& metric) {
  std::vector<Row> found;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(found),
               [&](const Row& row) { return row.metric == metric; });
  return found;
}

// What a profile of one forward has seen of an operator, or of all products but the head's.
Profile::Entry seen(const Model& model, int tokens, const std::string& part_of_name) {
  Profile profile;
  run_task(model, timed_ops(fast_ops(), profile), sample_ids(model.config, tokens), 0);
  Profile::Entry sum;
  for (const auto& [name, entry] : profile.entries) {
    if (name.find(part_of_name) == std::string::npos) continue;
    sum.bytes += entry.bytes;
    sum.additions += entry.additions;
  }
  return sum;
}

}  // namespace

// ---- counts ----

TEST_CASE("costs: products and delta rule are those that a profile sees") {
  const Model model = random_model(tiny(), DType::F16).model;
  const int T = 7;
  const OperatorCosts costs = operator_costs(tiny(), DType::F16, T, 0);
  const Profile::Entry head = seen(model, T, "linear embed_tokens");
  const Profile::Entry all = seen(model, T, "linear ");
  CHECK(costs.at("head").weight_bytes == head.bytes);
  CHECK(costs.at("head").linear_operations == 2 * head.additions);
  CHECK(costs.at("linear").weight_bytes == all.bytes - head.bytes);
  CHECK(costs.at("linear").linear_operations == 2 * (all.additions - head.additions));
  CHECK(costs.at("delta_rule").state_bytes == seen(model, T, "delta_rule").bytes);
}

TEST_CASE("costs: a batch reads its weights once, and does everything else for each") {
  const Cost one = forward_cost(tiny(), DType::BF16, 1, 30);
  const Cost five = total(batch_costs(tiny(), DType::BF16, 5, 30));
  CHECK(five.weight_bytes == one.weight_bytes);
  CHECK(five.state_bytes == 5 * one.state_bytes);
  CHECK(five.operations() == 5 * one.operations());
}

TEST_CASE("costs: a round reads the model once, and MTP layer and head once for each draft") {
  const RandomModel random = random_model(tiny(), DType::BF16);
  double mtp_layer = 0;
  for (const StoredTensor& tensor : random.tensors) {
    const bool counts = tensor.name.starts_with("mtp.") && tensor.shape.size() == 2;
    if (counts) mtp_layer += 2.0 * static_cast<double>(tensor.shape[0] * tensor.shape[1]);
  }
  const double head = 2.0 * tiny().vocab_size * tiny().hidden_size;
  const Cost plain = forward_cost(tiny(), DType::BF16, 1, 9);
  const Cost round = total(round_costs(tiny(), DType::BF16, 3, 9));
  CHECK(round.weight_bytes == plain.weight_bytes + 3 * (mtp_layer + head));
  // Two operations for the two bytes of a bf16 weight.
  CHECK(round.linear_operations == 4 * plain.linear_operations + 3 * (mtp_layer + head));
  CHECK(total(round_costs(tiny(), DType::BF16, 0, 9)).operations() == plain.operations());
}

TEST_CASE("speed: a step should take the sum of what its operators take at their limits") {
  OperatorCosts costs;
  costs["reads"].weight_bytes = 100;
  costs["computes"].other_operations = 80;
  const Limits limits{10, 40, 0};
  CHECK(predicted_seconds(costs, DType::F32, limits) == 12);
  CHECK(least_seconds(total(costs), DType::F32, limits) == 10);  // as if both at once
}

// ---- context ----

TEST_CASE("task: a filled state can be written on, and again from the same place") {
  const Model model = random_model(tiny(), DType::F32).model;
  State state = filled_state(tiny(), 40, 3);
  CHECK(state.position == 40);
  const std::uint64_t first = run_steps(model, fast_ops(), state, 3).hash;
  CHECK(state.position == 43);
  rewind(tiny(), state, 40);
  CHECK(state.position == 40);
  CHECK(run_steps(model, fast_ops(), state, 3).hash == first);
  for (const LayerState& layer : state.layers) {
    if (const KVCache* cache = std::get_if<KVCache>(&layer)) CHECK(dim(cache->keys, 0) == 43);
  }
}

TEST_CASE("context: lengths end where the model's context or a quarter of the memory does") {
  constexpr std::size_t GiB = std::size_t{1} << 30;
  Config config = named_shape("qwen3.5-0.8b");
  CHECK(contexts_to_try(config, 4, 16 * GiB) == std::vector<int>{0, 1024, 4096, 16384, 32768});
  CHECK(contexts_to_try(config, 4, 3 * GiB) == std::vector<int>{0, 1024, 4096, 16384});
  CHECK(contexts_to_try(config, 4, 0) == std::vector<int>{0});
  config.max_position_embeddings = 4099;
  CHECK(contexts_to_try(config, 4, 16 * GiB) == std::vector<int>{0, 1024});
  config.max_position_embeddings = 4100;
  CHECK(contexts_to_try(config, 4, 16 * GiB) == std::vector<int>{0, 1024, 4096});
}

TEST_CASE("context: keys and values grow by the token, S and the conv tails not at all") {
  Speed speed = small_speed();
  const std::string conclusion = context_part(speed);
  const std::vector<Row> rows = checked_rows(speed, "context");
  const std::vector<Row> state = with_metric(rows, "state"), decode = with_metric(rows, "decode");
  REQUIRE(state.size() == 2);  // the shape ends at 4096
  REQUIRE(decode.size() == 2);
  const double S = 3.0 * 4 * 14 * 18 * 4, tails = 3.0 * 3 * (2 * 2 * 14 + 4 * 18) * 4;
  CHECK(state[0].value == doctest::Approx((S + tails) / 1e6));
  CHECK(state[1].value - state[0].value == doctest::Approx(1024 * 2.0 * 3 * 20 * 4 / 1e6));
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(*state[i].predicted == doctest::Approx(state[i].value));
    CHECK(*state[i].context == (i == 0 ? 0 : 1024));
    CHECK(*decode[i].context == *state[i].context);
    CHECK(decode[i].unit == "ms");
    CHECK(decode[i].output_hash);
    CHECK(*decode[i].predicted >= 0.999 * *decode[i].limit);
  }
  CHECK(conclusion.find("After 1024 tokens") == 0);
}

// ---- batch ----

TEST_CASE("batch: sizes are powers of two as far as a quarter of the memory goes") {
  const Config config = named_shape("qwen3.5-0.8b");
  constexpr std::size_t GiB = std::size_t{1} << 30;
  CHECK(batches_to_try(config, 205, 32 * GiB) == std::vector<int>{1, 2, 4, 8, 16, 32, 64});
  CHECK(batches_to_try(config, 205, GiB) == std::vector<int>{1, 2, 4});
  CHECK(batches_to_try(config, 205, 0) == std::vector<int>{1});
}

TEST_CASE("batch: weights stop being the limit where computing takes as long as reading") {
  const Config config = named_shape("qwen3.5-0.8b");
  const Limits limits{40e9, 300e9, 0};
  const double B = computing_from(config, DType::BF16, 203, limits);
  const Cost one = forward_cost(config, DType::BF16, 1, 203);
  const double reading = (one.weight_bytes + B * one.state_bytes) / limits.bandwidth;
  CHECK(reading == doctest::Approx(B * one.operations() / limits.fma));
  // Where a state is longer read than it takes to compute with it, that never happens.
  CHECK(std::isinf(computing_from(config, DType::BF16, 203, {40e9, 1e15, 0})));
}

TEST_CASE("batch: doubling is worth it as long as each brings a quarter more") {
  CHECK(doublings_worth({10}) == 0);
  CHECK(doublings_worth({10, 19, 30, 33, 60}) == 2);
  CHECK(doublings_worth({10, 12, 24}) == 0);
  CHECK(doublings_worth({8, 10, 12.5}) == 2);
}

TEST_CASE("batch: the first sequence's tokens are the same alone and among others") {
  Speed speed = small_speed();
  const std::string conclusion = batch_part(speed);
  const std::vector<Row> rows = checked_rows(speed, "batch");
  REQUIRE(rows.size() == 7);
  std::set<int> batches;
  for (const Row& row : rows) {
    batches.insert(*row.batch);
    CHECK(row.metric == "decode");
    CHECK(*row.tokens == 2 * *row.batch);
    CHECK(*row.context == 13);
    CHECK(row.output_hash == rows[0].output_hash);
  }
  CHECK(batches == std::set<int>{1, 2, 4, 8, 16, 32, 64});
  CHECK(conclusion.find("writes the same tokens") != std::string::npos);
}

TEST_CASE("batch: another sequence is another text, so that a hash could tell") {
  const Model model = random_model(tiny(), DType::F32).model;
  std::vector<State> states(2, filled_state(tiny(), 5, 4));
  const std::uint64_t first = run_batch(model, fast_ops(), states, 4).hash;
  for (State& state : states) rewind(tiny(), state, 5);
  Ops confused = fast_ops();  // the rows of a packed product change places
  confused.products = one_by_one([](const Tensor2& x, const Weight& w) {
    Tensor2 y = fast_ops().linear(x, w);
    if (dim(y, 0) == 2) std::swap_ranges(row(y, 0), row(y, 0) + dim(y, 1), row(y, 1));
    return y;
  });
  CHECK(run_batch(model, confused, states, 4).hash != first);
}

// ---- ops ----

TEST_CASE("ops: the distinct products of a forward are all that it has") {
  const Model model = random_model(tiny(), DType::BF16).model;
  for (const int tokens : {1, 7}) {
    double bytes_read = 0, operations = 0;
    std::set<std::pair<int, int>> shapes;
    std::set<std::string> matrices;
    for (const LinearCalls& calls : linear_calls(model, tokens)) {
      for (const Weight& w : calls.weights) {
        bytes_read += static_cast<double>(bytes(w));
        operations += 2.0 * w.rows * w.cols * calls.rows;
        CHECK(w.rows == calls.weights[0].rows);
        CHECK(w.cols == calls.weights[0].cols);
        CHECK(matrices.insert(w.name).second);
      }
      CHECK(shapes.insert({calls.weights[0].rows, calls.weights[0].cols}).second);
    }
    const Cost cost = forward_cost(tiny(), DType::BF16, tokens, 0);
    CHECK(bytes_read == cost.weight_bytes);
    CHECK(operations == cost.linear_operations);
  }
}

TEST_CASE("ops: shares are of one step, products by layer, the rest beside them") {
  Profile profile;
  profile.entries["linear mlp.up_proj"] = {2, 6, 100, 30};
  profile.entries["linear mlp.down_proj"] = {4, 6, 100, 30};
  profile.entries["linear embed_tokens"] = {1, 2, 60, 0};
  profile.entries["attention"] = {1, 6, 0, 0};
  profile.entries["rms_norm"] = {0.5, 6, 0, 0};
  OperatorCosts costs;
  costs["attention"].state_bytes = 5;
  const std::vector<OperatorTime> times =
      operator_times(profile, 2, 10, costs, DType::F32, {20, 10, 0});
  const std::vector<std::string> names = {"linear, MLP", "attention", "linear, head", "rms_norm",
                                          "between operators"};
  REQUIRE(times.size() == names.size());
  std::map<std::string, OperatorTime> by_name;
  double sum = 0;
  for (const OperatorTime& time : times) {
    by_name[time.name] = time;
    sum += time.seconds;
  }
  for (const std::string& name : names) CHECK(by_name.contains(name));
  CHECK(sum == doctest::Approx(5));
  CHECK(times.front().name == "linear, MLP");
  CHECK(times.back().name == "between operators");
  CHECK(by_name["linear, MLP"].seconds == 3);
  CHECK(by_name["linear, MLP"].least == 6);  // 2 * 60 / 2 operations at 10; 100 bytes take 5
  CHECK(by_name["linear, head"].least == 1.5);
  CHECK(by_name["attention"].least == 0.25);
  CHECK(by_name["rms_norm"].least == 0);
  CHECK(by_name["between operators"].seconds == doctest::Approx(0.75));
}

TEST_CASE("ops: the shares of a step add up, and the watched step writes what the plain one does") {
  Speed speed = small_speed();
  const std::string conclusion = ops_part(speed);
  const std::vector<Row> rows = checked_rows(speed, "ops");
  for (const int tokens : {1, 13}) {
    double share = 0, products = 0, sum = 0;
    for (const Row& row : rows) {
      // Of a prompt, the head has one row.
      if (row.metric.starts_with("share ") && row.tokens == tokens) share += row.value;
      if (row.metric == "linear_sum" && row.tokens == tokens) sum = row.value;
    }
    const auto end = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
      return row.metric == "linear_sum" && row.tokens == tokens;
    });
    for (auto row = end; row-- != rows.begin() && row->metric.starts_with("linear ");) {
      products += row->value;
    }
    CHECK(share == doctest::Approx(100));
    CHECK(products == doctest::Approx(sum));
  }
  const std::vector<Row> steps = with_metric(rows, "step");
  REQUIRE(steps.size() == 2);
  for (const Row& step : steps) {
    CHECK(step.unit == "ms");
    CHECK(step.output_hash);
    CHECK(*step.predicted >= 0.999 * *step.limit);
  }
  CHECK(std::count(conclusion.begin(), conclusion.end(), '\n') == 1);
  CHECK(conclusion.find("A token should take") == 0);
}

// ---- mtp ----

TEST_CASE("mtp: a round's tokens are one, and every draft that all before it let through") {
  CHECK(tokens_of_round(0, 4) == 1);
  CHECK(tokens_of_round(1, 4) == 5);
  CHECK(tokens_of_round(0.5, 2) == 1.75);
}

TEST_CASE("mtp: with and without drafts the same text, and what other acceptances would bring") {
  Speed speed = small_speed();
  const std::string conclusion = mtp_part(speed);
  const std::vector<Row> rows = checked_rows(speed, "mtp");
  const Row* plain = find_row(rows, "decode", 2);
  REQUIRE(plain != nullptr);
  CHECK(*plain->tokens == 6);
  for (const char* drafts : {"1_draft", "2_drafts", "3_drafts", "4_drafts"}) {
    CAPTURE(drafts);
    const auto row = [&](const std::string& what) {
      const Row* found = find_row(rows, what + drafts, 2);
      REQUIRE(found != nullptr);
      return *found;
    };
    CHECK(row("decode_").output_hash == plain->output_hash);
    CHECK(row("accepted_").value >= 0);
    const int count = drafts[0] - '0';
    CHECK(row("accepted_").value <= count);
    for (const int acceptance : {50, 70, 90}) {
      CHECK(
          row("if_" + std::to_string(acceptance) + "_percent_").value ==
          doctest::Approx(1e3 * tokens_of_round(acceptance / 100.0, count) / row("round_").value));
    }
  }
  CHECK(conclusion.find("The text is the same with and without") != std::string::npos);
}

TEST_CASE("mtp: a model without an MTP layer says so") {
  Speed speed = small_speed();
  speed.source.config.mtp_num_hidden_layers = 0;
  CHECK(mtp_part(speed) == "This model has no MTP layer.");
  CHECK(speed.rows.empty());
}

// ---- pool ----

TEST_CASE("pool: every small operator goes through what is put around it, and computes the same") {
  const Model model = random_model(tiny(), DType::F32).model;
  int calls = 0;
  const Ops watched = small_ops_around(fast_ops(), [&](const std::function<void()>& work) {
    ++calls;
    work();
  });
  State state = filled_state(tiny(), 5, 2);
  const std::uint64_t hash = run_steps(model, fast_ops(), state, 2).hash;
  rewind(tiny(), state, 5);
  CHECK(run_steps(model, watched, state, 2).hash == hash);
  // Per layer 2 norms and swiglu; attention: norms of q and k, rope of both, itself, its gate;
  // DeltaNet: convolution, gated norm. And the final norm.
  CHECK(calls == 2 * (4 * 3 + 1 * 6 + 3 * 2 + 1));
}

TEST_CASE("pool: an empty step has the shapes of a real one") {
  const Model model = random_model(tiny(), DType::F32).model;
  set_thread_count(2);
  State state = filled_state(tiny(), 5, 2);
  CHECK_NOTHROW(run_steps(model, empty_ops(), state, 2));
  CHECK(state.position == 7);
}

TEST_CASE("pool: whoever runs the small operators, the tokens are the same") {
  Speed speed = small_speed();
  const std::string conclusion = pool_part_on(speed, tiny(), "tiny");
  const std::vector<Row> rows = checked_rows(speed, "pool");
  for (const char* metric : {"region_awake", "region_asleep", "handover", "empty_step"}) {
    const Row* row = find_row(rows, metric, 2);
    REQUIRE(row != nullptr);
    CHECK(row->unit == "ms");
    CHECK(row->value > 0);
  }
  const Row* plain = find_row(rows, "decode", 2);
  REQUIRE(plain != nullptr);
  for (const char* metric : {"decode_regions", "decode_handover"}) {
    const Row* row = find_row(rows, metric, 2);
    REQUIRE(row != nullptr);
    CHECK(row->output_hash == plain->output_hash);
    CHECK(*row->predicted < plain->value);
  }
  CHECK(conclusion.find("has 25 small operators") != std::string::npos);
}

TEST_CASE("pool: one thread has nobody to wake") {
  Speed speed = small_speed();
  speed.threads = 1;
  CHECK(pool_part(speed) == "One thread has nobody to wake.");
  CHECK(speed.rows.empty());
}
