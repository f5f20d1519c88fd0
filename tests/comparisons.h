// What a table of operators must stand up to, as functions: the tests show that the right tables
// pass them, and that tables with one wrong entry (planted.h) do not.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "qwen/load.h"
#include "qwen/ops.h"
#include "tests/support.h"

namespace qwen {

// A table for a model of that config. (Few entries need to know the config; some wrong ones do.)
using Table = std::function<Ops(const Config&)>;

// The right ones: plain, fast, and plain with the delta rule in chunks.
Ops chunk_ops();

// The fast table, for tests of what is built on it.
const Ops& ops();

// Computes with a table and returns what is wrong with the result, in one line; empty if nothing.
struct Comparison {
  std::string name;
  std::function<std::string(const Table&)> complaint;
};

// With numbers made by transformers. By operator ("rms_norm", "conv_qkv", …), "logits" of every
// small checkpoint, "logits after several pieces"; "delta_rule in chunks" is the one that allows
// the errors of chunks.
const std::vector<Comparison>& reference_comparisons();

// With the table's own results in one go on one thread, bit for bit: "any pieces", "any threads",
// "packed with others".
const std::vector<Comparison>& invariance_comparisons();

// Of either kind.
const Comparison& comparison(const std::string& name);

// ---- what they are made of ----

// A small checkpoint, and the ids of its reference runs.
struct SmallModel {
  std::string name;
  Model model;
  Goldens goldens;
  std::vector<int> ids;  // [203]
};
SmallModel small_model(const std::string& name, std::optional<DType> dtype = std::nullopt);

// Names under checkpoints/ of all that have reference logits.
const std::vector<std::string>& small_models();

// Lengths at which they have them.
inline constexpr int kLengths[] = {1, 2, 3, 63, 64, 65, 130, 203};

// Reads the ids in pieces of these sizes: logits [T, vocab_size] of every row.
Tensor2 logits_of(const Model& model, const Ops& ops, std::span<const int> ids,
                  const std::vector<int>& pieces, State& state);
Tensor2 logits_of(const Model& model, const Ops& ops, std::span<const int> ids,
                  const std::vector<int>& pieces);

// The logits against the reference's at all lengths: design's bound, and the same best token.
std::string logits_complaint(const SmallModel& small, const Ops& ops, double tolerance = 5e-5);

// One go on one thread against each of the ways to cut the ids into pieces; the state left behind
// counts too.
std::string pieces_complaint(const Model& model, const Ops& ops, std::span<const int> ids,
                             const std::vector<std::vector<int>>& ways);

// One thread against 2, 3 and 5.
std::string threads_complaint(const Model& model, const Ops& ops, std::span<const int> ids);

// Four sequences of different lengths, at different places, in one call against each alone.
std::string packed_complaint(const Model& model, const Ops& ops, std::span<const int> ids);

// The states of two sequences, bit for bit.
std::string state_difference(const State& actual, const State& expected);

// Every way to write n as a sum of pieces: 2^(n - 1) of them.
std::vector<std::vector<int>> all_pieces(int n);

}  // namespace qwen
