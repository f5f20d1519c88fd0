// One order of arithmetic: what a token's logits are depends on the tokens before it and on the
// weights, and on nothing else, to the last bit. (What each operator does for it is tested with the
// operator.)
#include <algorithm>
#include <numeric>

#include "qwen/cache.h"
#include "qwen/parallel.h"
#include "qwen/tables.h"
#include "tests/checkpoints.h"
#include "tests/comparisons.h"

using namespace qwen;

namespace {

// Each kind of layer and of weight: f32, bf16 and f16.
const std::vector<std::string> kModels = {"tiny", "grouped", "bf16", "f16", "qwen3", "llama"};

// The logits of one go.
Tensor2 logits_of(const Model& model, std::span<const int> ids) {
  return logits_of(model, fast_ops(), ids, {static_cast<int>(ids.size())});
}

// Checks a checkpoint written in another way against the same one as it lies in checkpoints/.
void check_same_model(const std::string& path, const SmallModel& small) {
  const Model model = load_model(path);
  for (const int T : {1, 9}) {
    const std::span<const int> ids = std::span(small.ids).first(T);
    check_same_bits(path, logits_of(model, ids), logits_of(small.model, ids));
  }
}

}  // namespace

TEST_CASE("one order: any number of threads") {
  for (const std::string& name : kModels) {
    const SmallModel small = small_model(name);
    const std::string found = threads_complaint(small.model, fast_ops(), small.ids);
    CHECK_MESSAGE(found.empty(), name << ": " << found);
  }
}

TEST_CASE("one order: a prompt of 9 tokens in one go and cut at any places") {
  for (const std::string& name : kModels) {
    const SmallModel small = small_model(name);
    const std::string found =
        pieces_complaint(small.model, fast_ops(), std::span(small.ids).first(9), all_pieces(9));
    CHECK_MESSAGE(found.empty(), name << ": " << found);
  }
}

TEST_CASE("one order: a prompt of 130 tokens in one go, token by token, and cut at 1, 63, 64, 65") {
  const std::vector<std::vector<int>> ways = {
      {1, 129}, {63, 67}, {64, 66}, {65, 65}, {1, 62, 1, 1, 65}, std::vector<int>(130, 1)};
  for (const std::string& name : kModels) {
    const SmallModel small = small_model(name);
    const std::string found =
        pieces_complaint(small.model, fast_ops(), std::span(small.ids).first(130), ways);
    CHECK_MESSAGE(found.empty(), name << ": " << found);
  }
}

TEST_CASE("one order: alone and packed with others, of other lengths and at other places") {
  for (const std::string& name : kModels) {
    const SmallModel small = small_model(name);
    const std::string found = packed_complaint(small.model, fast_ops(), small.ids);
    CHECK_MESSAGE(found.empty(), name << ": " << found);
  }
}

TEST_CASE("one order: the head on the rows that are wanted and on all rows") {
  for (const std::string& name : kModels) {
    const SmallModel small = small_model(name);
    const std::span<const int> ids = std::span(small.ids).first(13);
    State state = empty_state(small.model.config);
    const Tensor2 last = forward(small.model, fast_ops(), ids, state);
    check_same_bits(name, last, slice(logits_of(small.model, ids), 12, 1));
  }
}

TEST_CASE("one order: before and after going back to a snapshot") {
  for (const std::string& name : kModels) {
    const SmallModel small = small_model(name);
    const std::span<const int> ids = small.ids;
    for (const int place : {1, 2, 5, 63, 64, 65}) {
      Sequence sequence = empty_sequence(small.model.config);
      read(small.model, fast_ops(), sequence, ids.first(place));
      snapshot(sequence);
      const Tensor2 before = read(small.model, fast_ops(), sequence, ids.subspan(place, 7));
      const State after = sequence.state;
      read(small.model, fast_ops(), sequence, ids.subspan(100, 90));  // another text
      CHECK(truncate(sequence, place) == place);
      check_same_bits(name, read(small.model, fast_ops(), sequence, ids.subspan(place, 7)), before);
      CHECK(state_difference(sequence.state, after) == "");
    }
  }
}

TEST_CASE("one order: data at any address of the file, also behind a tensor of one byte") {
  for (const char* name : {"tiny", "bf16", "f16"}) {
    const SmallModel small = small_model(name);
    CheckpointParts parts = take_apart(name);
    for (int spaces = 0; spaces < 8; ++spaces) {
      const TempDir folder;
      check_same_model(write_checkpoint(folder, parts, spaces), small);
    }
    parts.tensors.insert(parts.tensors.begin(), {"model.visual.one", "U8", {1}, "x"});
    const TempDir folder;
    check_same_model(write_checkpoint(folder, parts), small);
  }
}

TEST_CASE("one order: the same tensors in any order and in any shards") {
  for (const char* name : {"tiny", "bf16"}) {
    const SmallModel small = small_model(name);
    CheckpointParts parts = take_apart(name);
    std::reverse(parts.tensors.begin(), parts.tensors.end());
    {
      const TempDir folder;
      check_same_model(write_checkpoint(folder, parts), small);
    }
    for (const int shards : {1, 2, 5}) {
      const TempDir folder;
      check_same_model(write_shards(folder, parts, shards), small);
    }
  }
}

TEST_CASE("one order: a product and a sum are two roundings unless a fused one is written") {
  volatile float a = 1 + 0x1p-12f, b = a, c = -1;
  // a * b is 1 + 2^-11 + 2^-24, of which float32 keeps 1 + 2^-11; fused, the last bit would stay.
  const float product_and_sum = a * b + c;
  CHECK(product_and_sum == 0x1p-11f);
}

TEST_CASE("one order: all threads round alike, down to the smallest numbers") {
  const int before = thread_count();
  set_thread_count(3);
  std::vector<float> y(999);
  volatile float small = 0x1p-120f, smaller = 0x1.8p-10f;
  parallel_for(999, 1, [&](int begin, int) { y[begin] = small * smaller; });
  set_thread_count(before);
  CHECK(std::count(y.begin(), y.end(), 0x1.8p-130f) == 999);
}
