// The MTP layer against tiny_mtp.py on top of transformers (tests/data/mtp.safetensors).
#include <algorithm>
#include <cmath>

#include "qwen/mtp.h"
#include "qwen/tables.h"
#include "tests/checkpoints.h"
#include "tests/comparisons.h"

using namespace qwen;

namespace {

// Sums of at most 78 products, each the result of a few more, in float32: what is allowed for
// logits (the reference's own float32 run is off by 1e-6).
constexpr double kTolerance = 5e-5;

const std::string kCheckpoint = "checkpoints/wrapper";

Mtp mtp_of(const std::string& path, std::optional<DType> dtype = std::nullopt) {
  return load_mtp(read_config(path), open_checkpoint(path), dtype);
}

struct Fixture {
  Model model = load_model(kCheckpoint);
  Mtp mtp = mtp_of(kCheckpoint);
  Goldens goldens = load_goldens("mtp.safetensors");
  std::vector<int> ids = goldens.ints("ids");
  Ops ops = fast_ops();

  int rows() const { return static_cast<int>(ids.size()) - 1; }
  std::span<const int> next_ids() const { return std::span(ids).subspan(1); }

  Tensor2 hidden(int count) const {
    State state = empty_state(model.config);
    const Share<State> alone{&state, count};
    return hidden_states(model, ops, std::span(ids).first(count), {&alone, 1});
  }
  Tensor2 teacher_forced(const Mtp& layer, const Tensor2& states, std::span<const int> next) const {
    LayerState memory = empty_mtp_memory();
    return head(model, ops, mtp_forward(model, ops, layer, states, next, memory));
  }
};

std::string logits_difference(const Fixture& at, const Tensor2& logits) {
  return difference("logits", logits, at.goldens.tensor<2>("logits"), kTolerance);
}

// Loading a checkpoint changed like that must fail with one line that says so.
void check_refused(const std::function<void(CheckpointParts&)>& change,
                   const std::string& message) {
  CheckpointParts parts = take_apart("wrapper");
  change(parts);
  const TempDir folder;
  const std::string path = write_checkpoint(folder, parts);
  check_throws_with([&] { mtp_of(path); }, message);
}

// w with its first and last cols / 2 columns exchanged.
Weight with_halves_exchanged(const Weight& w) {
  const auto exchanged = std::make_shared<std::vector<float>>(w.rows * w.cols);
  for (int n = 0; n < w.rows; ++n) {
    std::vector<float> values(w.cols);
    to_float(w.dtype, row(w, n), values.size(), values.data());
    std::rotate_copy(values.begin(), values.begin() + w.cols / 2, values.end(),
                     exchanged->begin() + n * w.cols);
  }
  Weight other = w;
  other.dtype = DType::F32;
  other.data = reinterpret_cast<const std::byte*>(exchanged->data());
  other.owner = exchanged;
  return other;
}

}  // namespace

TEST_CASE("mtp: states, output and logits of a text are the reference's") {
  const Fixture at;
  const Tensor2 hidden = at.hidden(at.rows() + 1);
  check_close("hidden", hidden, at.goldens.tensor<2>("hidden"), kTolerance);
  for (const Ops& ops : {fast_ops(), plain_ops()}) {
    LayerState memory = empty_mtp_memory();
    const Tensor2 out =
        mtp_forward(at.model, ops, at.mtp, slice(hidden, 0, at.rows()), at.next_ids(), memory);
    check_close("out", out, at.goldens.tensor<2>("out"), kTolerance);
    CHECK(logits_difference(at, head(at.model, ops, out)) == "");
    CHECK(std::get<KVCache>(memory).length == at.rows());
  }
}

TEST_CASE("mtp: four drafts in a row, each from the output before, are the reference's") {
  const Fixture at;
  const std::vector<int> drafts = at.goldens.ints("chain.ids");
  const Tensor2 expected = at.goldens.tensor<2>("chain.logits");
  constexpr int kPrompt = 13;
  Tensor2 state = at.hidden(kPrompt);
  std::vector<int> next(at.ids.begin() + 1, at.ids.begin() + kPrompt);
  next.push_back(argmax(head(at.model, at.ops, slice(state, kPrompt - 1, 1))));
  CHECK(next.back() == at.goldens.ints("chain.next")[0]);
  LayerState memory = empty_mtp_memory();
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    CAPTURE(i);
    const Tensor2 out = mtp_forward(at.model, at.ops, at.mtp, state, next, memory);
    state = slice(out, dim(out, 0) - 1, 1);
    const Tensor2 logits = head(at.model, at.ops, state);
    check_close("chain.logits", logits, slice(expected, static_cast<int>(i), 1), kTolerance);
    next = {argmax(logits)};
    CHECK(next[0] == drafts[i]);
  }
}

TEST_CASE("mtp: rows in pieces give the bits of one call") {
  const Fixture at;
  const Tensor2 hidden = slice(at.hidden(at.rows() + 1), 0, at.rows());
  LayerState whole = empty_mtp_memory(), cut = empty_mtp_memory();
  const Tensor2 expected = mtp_forward(at.model, at.ops, at.mtp, hidden, at.next_ids(), whole);
  int first = 0;
  for (const int rows : {1, 2, 62, 4}) {
    const Tensor2 part = mtp_forward(at.model, at.ops, at.mtp, slice(hidden, first, rows),
                                     at.next_ids().subspan(first, rows), cut);
    check_same_bits("piece", part, slice(expected, first, rows));
    first += rows;
  }
  CHECK(first == at.rows());
}

TEST_CASE("mtp: a GGUF's nextn block is the same layer") {
  const Fixture at;
  const Mtp nextn = mtp_of("gguf/wrapper.gguf");
  check_same_bits("norm", nextn.norm, at.mtp.norm);  // 1 + w there, w here
  const Tensor2 hidden = slice(at.hidden(at.rows() + 1), 0, at.rows());
  check_same_bits("logits", at.teacher_forced(nextn, hidden, at.next_ids()),
                  at.teacher_forced(at.mtp, hidden, at.next_ids()));
}

TEST_CASE("mtp: another dtype concerns the matrices") {
  const Fixture at;
  const Mtp bf16 = mtp_of(kCheckpoint, DType::BF16);
  CHECK(bf16.fc.dtype == DType::BF16);
  CHECK(std::get<Attention>(bf16.layer.mixer).q_proj.dtype == DType::BF16);
  CHECK(bf16.layer.mlp.down_proj.dtype == DType::BF16);
  check_same_bits("norm", bf16.norm, at.mtp.norm);
  const Tensor2 hidden = slice(at.hidden(at.rows() + 1), 0, at.rows());
  // 8 bits of mantissa, in two products in a row and the layer between.
  check_close("logits", at.teacher_forced(bf16, hidden, at.next_ids()),
              at.goldens.tensor<2>("logits"), 0.05);
}

TEST_CASE("mtp: a checkpoint without one is told apart from one that lacks a tensor") {
  check_throws_with([] { mtp_of("checkpoints/tiny"); },
                    "checkpoints/tiny/model.safetensors: no MTP in this checkpoint");
  check_throws_with([] { mtp_of("gguf/wild.gguf"); }, "no MTP in this checkpoint");
  check_throws_with([] { mtp_of("checkpoints/llama"); }, "no MTP in this checkpoint");
  int count = 0;
  for (const CheckpointParts::Part& part : take_apart("wrapper").tensors) {
    if (!part.name.starts_with("mtp.")) continue;
    ++count;
    check_refused([&](CheckpointParts& parts) { parts.erase(part.name); },
                  "tensor " + part.name + " is missing");
  }
  CHECK(count == 15);
}

TEST_CASE("mtp: other shapes, tensors without a place, and infinite norms are refused") {
  check_refused(
      [](CheckpointParts& parts) {
        parts.at("mtp.fc.weight").shape = {78, 39};
      },
      "mtp.fc.weight is [78, 39], expected [39, 78]");
  check_refused(
      [](CheckpointParts& parts) {
        parts.tensors.push_back({"mtp.layers.1.mlp.up_proj.weight", "F32", {1}, "1234"});
      },
      "tensor \"mtp.layers.1.mlp.up_proj.weight\" has no place in an MTP of one layer");
  check_refused([](CheckpointParts& parts) { parts.set("mtp.norm.weight", 3, INFINITY); },
                "tensor mtp.norm.weight holds inf");
}

TEST_CASE("mtp: a value that is not finite is named") {
  CheckpointParts parts = take_apart("wrapper");
  parts.set("mtp.fc.weight", 5, NAN);
  const TempDir folder;
  const Mtp broken = mtp_of(write_checkpoint(folder, parts));
  const Fixture at;
  LayerState memory = empty_mtp_memory();
  check_throws_with(
      [&] {
        mtp_forward(at.model, at.ops, broken, at.hidden(2), {{3, 4}}, memory);
      },
      "the MTP layer: row 0, column 0 is");
}

TEST_CASE("mtp: states and tokens must be as many, and tokens known") {
  const Fixture at;
  LayerState memory = empty_mtp_memory();
  check_throws_with(
      [&] {
        mtp_forward(at.model, at.ops, at.mtp, at.hidden(2), {{3, 4, 5}}, memory);
      },
      "[mtp_forward] hidden is [2, 39], expected [3, 39]");
  check_throws_with([&] { mtp_forward(at.model, at.ops, at.mtp, at.hidden(1), {{263}}, memory); },
                    "[embed] id 263");
}

// ---- planted bugs ----

TEST_CASE("planted bugs: states from before the final norm are noticed") {
  // The MTP's own norm makes up for the length of these states, not for the final norm's weight.
  const Fixture at;
  Fixture without_weight;
  without_weight.model.norm.fill(1.0f);
  const Tensor2 hidden = slice(without_weight.hidden(at.rows() + 1), 0, at.rows());
  CHECK(logits_difference(at, at.teacher_forced(at.mtp, hidden, at.next_ids())) != "");
}

TEST_CASE("planted bugs: the halves of fc exchanged are noticed") {
  const Fixture at;
  const Tensor2 hidden = slice(at.hidden(at.rows() + 1), 0, at.rows());
  Mtp exchanged = at.mtp;
  exchanged.fc = with_halves_exchanged(at.mtp.fc);
  CHECK(logits_difference(at, at.teacher_forced(exchanged, hidden, at.next_ids())) != "");
  exchanged.fc = with_halves_exchanged(exchanged.fc);
  CHECK(logits_difference(at, at.teacher_forced(exchanged, hidden, at.next_ids())) == "");
}

TEST_CASE("planted bugs: the token at p in the place of the one after it is noticed") {
  const Fixture at;
  const Tensor2 hidden = slice(at.hidden(at.rows() + 1), 0, at.rows());
  const std::span<const int> same = std::span(at.ids).first(at.rows());
  CHECK(logits_difference(at, at.teacher_forced(at.mtp, hidden, same)) != "");
}

TEST_CASE("planted bugs: an output without the MTP's own last norm is noticed") {
  const Fixture at;
  const Tensor2 hidden = slice(at.hidden(at.rows() + 1), 0, at.rows());
  Mtp borrowed = at.mtp;
  borrowed.norm = at.model.norm;
  CHECK(logits_difference(at, at.teacher_forced(borrowed, hidden, at.next_ids())) != "");
}
