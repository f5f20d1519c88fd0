#include "qwen/parallel.h"
#include "qwen/roofline.h"
#include "qwen/speed_threads.h"
#include "tests/support.h"

using namespace qwen;

TEST_CASE("roofline: the block is four caches or 1 GiB, but never more than a quarter of memory") {
  constexpr std::size_t GiB = std::size_t{1} << 30;
  CHECK(read_block_bytes(GiB / 32, 16 * GiB) == GiB);
  CHECK(read_block_bytes(GiB / 2, 16 * GiB) == 2 * GiB);
  CHECK(read_block_bytes(GiB / 2, 4 * GiB) == GiB);
  CHECK(read_block_bytes(0, GiB) == GiB / 4);
}

TEST_CASE("roofline: every order of reading reads all of the block") {
  const ReadBlock block(3 << 20);
  CHECK(block.size() * sizeof(float) == 3 << 20);
  for (int order = 0; order < kReadOrders; ++order) CHECK(read_all(block, order) == 3 << 20);
}

TEST_CASE("roofline: twice the threads do twice the operations of a burst") {
  const int threads = thread_count();
  set_thread_count(1);
  const double one = multiply_adds(), one_bf16 = bf16_dot_products();
  set_thread_count(2);
  CHECK(multiply_adds() == 2 * one);
  CHECK(bf16_dot_products() == 2 * one_bf16);
  CHECK((one_bf16 == 0 || one_bf16 == 2 * one));
  set_thread_count(threads);
}

TEST_CASE("speed: a step takes as long as its bytes or its operations, whichever is longer") {
  Cost cost;
  cost.weight_bytes = 100;
  cost.linear_operations = 60;
  cost.other_operations = 20;
  CHECK(least_seconds(cost, DType::F32, {10, 40, 120}) == 10);                     // reading
  CHECK(least_seconds(cost, DType::F32, {1000, 40, 120}) == 2);                    // computing
  CHECK(least_seconds(cost, DType::F16, {1000, 40, 120}) == 2);                    // in float32
  CHECK(least_seconds(cost, DType::BF16, {1000, 40, 120}) == doctest::Approx(1));  // 0.5 + 0.5
  CHECK(least_seconds(cost, DType::BF16, {1000, 40, 0}) == 2);   // no bf16 instruction
  CHECK(least_seconds(cost, DType::BF16, {1000, 40, 20}) == 2);  // or a slow one
}

TEST_CASE("speed: a decode row stands beside the limit of the best team and of its own") {
  Speed speed;
  speed.source.config.vocab_size = 1000;
  speed.source.config.hidden_size = 10;  // no layers: a token reads 40,000 bytes
  speed.prompt = 7;
  speed.steps = 4;
  speed.limits[1] = {40000, 1e9, 0};
  speed.limits[2] = {80000, 2e9, 0};
  add_task_rows(speed, "threads", DType::F32, 1, {{{9, 9}, 5}, {{1, 8}, 5}});
  const Row* decode = find_row(speed.rows, "decode", 1);
  REQUIRE(decode != nullptr);
  CHECK(decode->value == 0.5);
  CHECK(*decode->limit == 2);
  CHECK(*decode->predicted == 1);
  CHECK(*percent_of_limit(*decode) == 25);
  CHECK(find_row(speed.rows, "prefill", 1)->value == 7);
  CHECK(find_row(speed.rows, "decode", 2) == nullptr);
}

TEST_CASE("speed: teams are the powers of two up to the cores, all CPUs, and twice the cores") {
  CHECK(teams_to_try(1, 1) == std::vector<int>{1, 2});
  CHECK(teams_to_try(2, 2) == std::vector<int>{1, 2, 4});
  CHECK(teams_to_try(6, 12) == std::vector<int>{1, 2, 4, 6, 12});
  CHECK(teams_to_try(12, 16) == std::vector<int>{1, 2, 4, 8, 12, 16, 24});
}

TEST_CASE("speed: a model that is not there is an error of one line") {
  check_throws_with([] { choose_model("no/such/model"); }, "no/such/model");
  CHECK(choose_model("").path.empty());
}
