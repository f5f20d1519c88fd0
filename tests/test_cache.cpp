#include "qwen/cache.h"
#include "qwen/tables.h"
#include "tests/comparisons.h"

using namespace qwen;

namespace {

// A model, and one text of it.
struct Fixture {
  SmallModel small;
  Sequence sequence;

  explicit Fixture(const std::string& name)
      : small(small_model(name)), sequence(empty_sequence(small.model.config)) {}

  std::span<const int> ids(int first, int count) const {
    return std::span(small.ids).subspan(first, count);
  }
  Tensor2 read(int first, int count, int piece = 512) {
    return qwen::read(small.model, ops(), sequence, ids(first, count), piece);
  }
  // The logits of the last of these tokens, read by a fresh sequence.
  Tensor2 fresh(const std::vector<int>& tokens) const {
    State state = empty_state(small.model.config);
    return forward(small.model, ops(), tokens, state);
  }
  Tensor2 fresh(int count) const { return fresh({ids(0, count).begin(), ids(0, count).end()}); }
};

std::vector<int> positions(const Sequence& sequence) {
  std::vector<int> all;
  for (const Snapshot& one : sequence.snapshots) all.push_back(one.position);
  return all;
}

}  // namespace

TEST_CASE("read: the logits of the last token, in pieces of any size") {
  for (const int piece : {0, 1, 2, 64, 512}) {
    Fixture at("tiny");
    check_same_bits("pieces of " + std::to_string(piece), at.read(0, 70, piece), at.fresh(70));
    CHECK(at.sequence.state.position == 70);
    CHECK(at.sequence.ids == std::vector<int>(at.small.ids.begin(), at.small.ids.begin() + 70));
    check_same_bits("and one more", at.read(70, 1, piece), at.fresh(71));
  }
}

TEST_CASE("read: what does not fit is refused as a whole, whatever the pieces") {
  Fixture at("tiny");
  at.read(0, 203);
  const State before = at.sequence.state;
  std::vector<int> too_many(310, 1), unknown(20, 1);
  unknown.back() = 263;
  check_throws_with([&] { read(at.small.model, ops(), at.sequence, too_many, 7); },
                    "310 more tokens after 203 do not fit into the model's context of 512");
  check_throws_with([&] { read(at.small.model, ops(), at.sequence, unknown, 7); },
                    "token id 263 at position 222");
  check_throws_with([&] { read(at.small.model, ops(), at.sequence, {}, 7); }, "[read] no tokens");
  CHECK(state_difference(at.sequence.state, before) == "");
  CHECK(at.sequence.ids.size() == 203);
}

TEST_CASE("truncate: back to the nearest snapshot at or before the place, later ones are dropped") {
  Fixture at("tiny");
  for (const int place : {4, 9, 20}) {
    at.read(at.sequence.state.position, place - at.sequence.state.position);
    snapshot(at.sequence);
  }
  snapshot(at.sequence);  // the same place a second time is the same snapshot
  CHECK(positions(at.sequence) == std::vector<int>{4, 9, 20});
  at.read(20, 10);

  CHECK(truncate(at.sequence, 30) == 30);  // nothing to do
  CHECK(positions(at.sequence) == std::vector<int>{4, 9, 20});
  CHECK(truncate(at.sequence, 20) == 20);
  CHECK(truncate(at.sequence, 19) == 9);
  CHECK(positions(at.sequence) == std::vector<int>{4, 9});
  CHECK(at.sequence.ids.size() == 9);
  check_same_bits("reading on", at.read(9, 8), at.fresh(17));
  CHECK(truncate(at.sequence, 4) == 4);
  check_same_bits("reading on", at.read(4, 1), at.fresh(5));
}

TEST_CASE("truncate: before the first snapshot all is read again") {
  Fixture at("tiny");
  at.read(0, 9);
  snapshot(at.sequence);
  at.read(9, 5);
  CHECK(truncate(at.sequence, 8) == 0);
  CHECK(at.sequence.ids.empty());
  CHECK(at.sequence.snapshots.empty());
  CHECK(state_difference(at.sequence.state, empty_state(at.small.model.config)) == "");
  check_same_bits("reading on", at.read(0, 6), at.fresh(6));
}

TEST_CASE("truncate: to nothing, of nothing, and to places that are not there") {
  Fixture at("grouped");
  CHECK(truncate(at.sequence, 0) == 0);
  at.read(0, 5);
  CHECK(truncate(at.sequence, 0) == 0);
  check_same_bits("reading on", at.read(0, 5), at.fresh(5));
  check_throws_with([&] { truncate(at.sequence, 6); },
                    "[truncate] position 6 is not within the 5 tokens of the sequence");
  check_throws_with([&] { truncate(at.sequence, -1); }, "[truncate] position -1 is not within");
  CHECK(at.sequence.ids.size() == 5);
}

TEST_CASE("truncate: where no layer is recurrent every place can be gone back to") {
  for (const char* name : {"qwen3", "llama"}) {
    Fixture at(name);
    at.read(0, 70);
    for (const int place : {66, 64, 63, 5, 1}) {
      CHECK(truncate(at.sequence, place) == place);
      check_same_bits(name, at.read(place, 3), at.fresh(place + 3));
    }
    CHECK(truncate(at.sequence, 0) == 0);
  }
}

TEST_CASE("reuse_prefix: the same prompt twice gives the same answer") {
  for (const char* name : {"tiny", "qwen3"}) {
    for (const bool with_snapshot : {false, true}) {
      Fixture at(name);
      at.read(0, 11);
      if (with_snapshot) snapshot(at.sequence);
      const Tensor2 first = at.read(11, 1);
      // All of it is known, but the last token's logits are wanted: it must be read once, from the
      // state before it.
      const int known = reuse_prefix(at.sequence, at.ids(0, 12));
      const bool recurrent = std::string(name) == "tiny";
      CHECK(known == (recurrent && !with_snapshot ? 0 : 11));
      CHECK(at.sequence.state.position == known);
      check_same_bits(name, at.read(known, 12 - known), first);
    }
  }
}

TEST_CASE("reuse_prefix: a prompt that parts, that is shorter, longer, or wholly another") {
  Fixture at("tiny");
  at.read(0, 6);
  snapshot(at.sequence);
  at.read(6, 6);
  snapshot(at.sequence);

  std::vector<int> prompt(at.ids(0, 15).begin(), at.ids(0, 15).end());
  CHECK(reuse_prefix(at.sequence, prompt) == 12);  // longer: nothing is lost
  prompt[10] = 1 - prompt[10] % 2;                 // parts within the second half
  const int known = reuse_prefix(at.sequence, prompt);
  CHECK(known == 6);
  check_same_bits("parted", read(at.small.model, ops(), at.sequence, std::span(prompt).subspan(6)),
                  at.fresh(prompt));
  CHECK(reuse_prefix(at.sequence, std::span(prompt).first(7)) == 6);  // shorter
  CHECK(reuse_prefix(at.sequence, std::span(prompt).first(6)) == 0);  // the 6th is read again
  at.read(0, 6);
  const std::vector<int> another = {prompt[0] + 1, prompt[1]};
  CHECK(reuse_prefix(at.sequence, another) == 0);
  check_throws_with([&] { reuse_prefix(at.sequence, {}); }, "[reuse_prefix] no tokens");
}

TEST_CASE("state: a copy is a sequence of its own") {
  for (const char* name : {"tiny", "qwen3"}) {
    Fixture at(name);
    at.read(0, 9);
    Sequence other = at.sequence;
    const State before = at.sequence.state;
    read(at.small.model, ops(), other, at.ids(50, 20));
    CHECK(state_difference(at.sequence.state, before) == "");
    check_same_bits(name, at.read(9, 4), at.fresh(13));
    std::vector<int> other_ids(at.ids(0, 9).begin(), at.ids(0, 9).end());
    other_ids.insert(other_ids.end(), at.ids(50, 21).begin(), at.ids(50, 21).end());
    check_same_bits(name, read(at.small.model, ops(), other, at.ids(70, 1)), at.fresh(other_ids));
  }
}

TEST_CASE("snapshot: a copy that reading on does not change") {
  Fixture at("tiny");
  at.read(0, 9);
  snapshot(at.sequence);
  const Tensor3 S = std::get<DeltaState>(at.sequence.state.layers[0]).S;
  at.read(9, 9);
  CHECK(bit_difference("S", at.sequence.snapshots[0].deltas[0].S, S) == "");
  CHECK(bit_difference("S", std::get<DeltaState>(at.sequence.state.layers[0]).S, S) != "");
  CHECK(at.sequence.snapshots[0].deltas.size() == 3);
}

TEST_CASE("state_bytes: what the config says, and only the KV cache grows") {
  for (const std::string& name : small_models()) {
    Fixture at(name);
    const Config& c = at.small.model.config;
    std::size_t kv = 0, recurrent = 0, conv = 0;  // KV: of one token
    for (const LayerType type : c.layer_types) {
      if (type == LayerType::full_attention) {
        kv += 4 * 2 * c.num_key_value_heads * c.head_dim;
      } else {
        const int keys = c.linear_num_key_heads * c.linear_key_head_dim;
        const int values = c.linear_num_value_heads * c.linear_value_head_dim;
        recurrent += 4 * values * c.linear_key_head_dim;
        conv += 4 * (c.linear_conv_kernel_dim - 1) * (2 * keys + values);
      }
    }
    for (const int T : {0, 1, 65, 66}) {  // the 66th makes room for more than itself
      const int more = T - at.sequence.state.position;
      if (more > 0) at.read(T - more, more);
      const StateBytes bytes = state_bytes(at.sequence.state);
      CAPTURE(name);
      CHECK(bytes.kv == T * kv);
      CHECK(bytes.recurrent == recurrent);
      CHECK(bytes.conv == conv);
      CHECK(bytes.total() == T * kv + recurrent + conv);
    }
  }
}
