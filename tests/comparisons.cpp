#include "tests/comparisons.h"

#include <algorithm>
#include <stdexcept>

#include "qwen/chunk.h"
#include "qwen/parallel.h"
#include "qwen/tables.h"

namespace qwen {
namespace {

// The first complaint of several; the rest need not be computed.
std::string first_of(std::initializer_list<std::string> complaints) {
  for (const std::string& complaint : complaints) {
    if (!complaint.empty()) return complaint;
  }
  return "";
}

Tensor3 first_rows(const Tensor3& x, int count) {
  Tensor3 part = uninit(count, dim(x, 1), dim(x, 2));
  std::copy_n(x.data(), part.size(), part.data());
  return part;
}

const Goldens& operators() {
  static const Goldens goldens = load_goldens("ops.safetensors");
  return goldens;
}

// ---- one operator against the reference; tolerances and their reasons: the operators' own tests

std::string rms_norm_complaint(const Table& table) {
  Tensor1 scale = operators().tensor<1>("rms_norm.weight");
  scale += 1.0f;
  return difference("rms_norm",
                    table({}).rms_norm(operators().tensor<2>("rms_norm.x"), scale, 1e-6f),
                    operators().tensor<2>("rms_norm.y"), 5e-7);
}

std::string gated_rms_norm_complaint(const Table& table) {
  return difference("gated_rms_norm",
                    table({}).gated_rms_norm(operators().tensor<2>("gated_rms_norm.x"),
                                             operators().tensor<2>("gated_rms_norm.z"),
                                             operators().tensor<1>("gated_rms_norm.weight"), 1e-6f),
                    operators().tensor<2>("gated_rms_norm.y"), 5e-7);
}

std::string swiglu_complaint(const Table& table) {
  return difference(
      "swiglu",
      table({}).swiglu(operators().tensor<2>("swiglu.gate"), operators().tensor<2>("swiglu.up")),
      operators().tensor<2>("swiglu.y"), 4e-7);
}

std::string rope_complaint(const Table& table) {
  Tensor3 x = operators().tensor<3>("rope.x");
  table({}).rope(x, operators().tensor<2>("rope.cos"), operators().tensor<2>("rope.sin"));
  return difference("rope", x, operators().tensor<3>("rope.y"), 2e-7);
}

std::string attention_complaint(const Table& table, int T, int position) {
  const std::string name =
      "attention." + std::to_string(T) + "_at_" + std::to_string(position) + ".y";
  const Tensor3 q = first_rows(operators().tensor<3>("attention.q"), T);
  return difference(name,
                    table({}).attention(q, operators().tensor<3>("attention.keys"),
                                        operators().tensor<3>("attention.values"), position),
                    operators().tensor<2>(name), 5e-6);
}

std::string sigmoid_gate_complaint(const Table& table) {
  return difference("sigmoid_gate",
                    table({}).sigmoid_gate(operators().tensor<2>("sigmoid_gate.x"),
                                           operators().tensor<2>("sigmoid_gate.gate")),
                    operators().tensor<2>("sigmoid_gate.y"), 4e-7);
}

std::string conv_qkv_complaint(const Table& table) {
  Tensor2 tail = operators().tensor<2>("conv_qkv.tail");
  const Qkv y = table({}).conv_qkv(operators().tensor<2>("conv_qkv.in"),
                                   operators().tensor<2>("conv_qkv.kernel"),
                                   {.Hk = 2, .Dk = 24, .Hv = 4, .Dv = 7}, tail);
  return first_of({difference("q", y.q, operators().tensor<3>("conv_qkv.q"), 1e-6),
                   difference("k", y.k, operators().tensor<3>("conv_qkv.k"), 1e-6),
                   difference("v", y.v, operators().tensor<3>("conv_qkv.v"), 1e-6)});
}

// A run of the delta rule under `prefix`, from the state S: its o and the S after it.
std::string delta_complaint(const Table& table, const std::string& prefix, Tensor3 S, int T,
                            const std::string& o, const std::string& S_after, double tolerance) {
  const auto rows = [&](const std::string& name) {
    return first_rows(operators().tensor<3>(prefix + name), T);
  };
  const Tensor2 g = operators().tensor<2>(prefix + "g");
  const Tensor2 beta = operators().tensor<2>(prefix + "beta");
  const Qkv qkv{rows("q"), rows("k"), rows("v")};
  const int Hk = dim(qkv.k, 1), Hv = dim(qkv.v, 1);
  std::vector<int> key_head;
  for (int h = 0; h < Hv; ++h) key_head.push_back(h / (Hv / Hk));
  const Tensor3 y = table({}).delta_rule(qkv, slice(g, 0, T), slice(beta, 0, T), key_head, S);
  return first_of(
      {difference(prefix + o, y, first_rows(operators().tensor<3>(prefix + o), T), tolerance),
       difference(prefix + S_after, S, operators().tensor<3>(prefix + S_after), tolerance)});
}

std::string delta_rule_complaint(const Table& table, double tolerance, double hard_tolerance) {
  for (const int T : {5, 70, 130}) {
    const std::string found = delta_complaint(table, "delta.", zeros(4, 24, 40), T, "o",
                                              "S." + std::to_string(T), tolerance);
    if (!found.empty()) return found;
  }
  for (const char* name : {"same_key", "two_keys", "fast_decay", "vanish", "no_decay"}) {
    const std::string prefix = std::string("stress.") + name + ".";
    const int T = static_cast<int>(operators().shape(prefix + "q")[0]);
    const std::string found =
        delta_complaint(table, prefix, zeros(2, 6, 5), T, "o", "S", hard_tolerance);
    if (!found.empty()) return found;
  }
  return delta_complaint(table, "delta.", operators().tensor<3>("delta.S_before"), 70, "warm.o",
                         "warm.S", tolerance);
}

// ---- whole models ----

// The model in float32, whatever it is stored as: so that one bound holds for all.
const std::vector<SmallModel>& all_in_float32() {
  static const std::vector<SmallModel> all = [] {
    std::vector<SmallModel> loaded;
    for (const std::string& name : small_models()) {
      loaded.push_back(small_model(name, DType::F32));
    }
    return loaded;
  }();
  return all;
}

std::string all_logits_complaint(const Table& table) {
  for (const SmallModel& small : all_in_float32()) {
    const std::string found = logits_complaint(small, table(small.model.config));
    if (!found.empty()) return found;
  }
  return "";
}

std::string continued_logits_complaint(const Table& table) {
  for (const SmallModel& small : all_in_float32()) {
    const Ops ops = table(small.model.config);
    for (const std::vector<int>& pieces : {std::vector<int>{64, 1}, {1, 1, 61, 2}, {3, 62}}) {
      const Tensor2 logits = logits_of(small.model, ops, std::span(small.ids).first(65), pieces);
      const Tensor2 expected =
          reshape(small.goldens.tensor<1>("logits.65"), 1, small.model.config.vocab_size);
      const std::string found =
          difference(small.name + " logits.65", slice(logits, 64, 1), expected, 5e-5);
      if (!found.empty()) return found;
    }
  }
  return "";
}

std::string in_tiny(const Table& table,
                    std::string (*complaint)(const Model&, const Ops&, std::span<const int>),
                    int count) {
  static const SmallModel tiny = small_model("tiny");
  return complaint(tiny.model, table(tiny.model.config), std::span(tiny.ids).first(count));
}

std::string some_pieces_complaint(const Model& model, const Ops& ops, std::span<const int> ids) {
  const int T = static_cast<int>(ids.size());
  return pieces_complaint(model, ops, ids,
                          {{64, T - 64}, {5, T - 5}, {T - 1, 1}, std::vector<int>(T, 1)});
}

}  // namespace

const Ops& ops() {
  static const Ops table = fast_ops();
  return table;
}

Ops chunk_ops() {
  Ops ops = plain_ops();
  ops.delta_rule = [](const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                      const std::vector<int>& key_head,
                      Tensor3& S) { return plain::chunk_delta_rule(qkv, g, beta, key_head, S); };
  return ops;
}

const std::vector<Comparison>& reference_comparisons() {
  static const std::vector<Comparison> all = {
      {"rms_norm", rms_norm_complaint},
      {"gated_rms_norm", gated_rms_norm_complaint},
      {"swiglu", swiglu_complaint},
      {"rope", rope_complaint},
      {"attention",
       [](const Table& table) {
         return first_of({attention_complaint(table, 5, 0), attention_complaint(table, 1, 149),
                          attention_complaint(table, 70, 67)});
       }},
      {"sigmoid_gate", sigmoid_gate_complaint},
      {"conv_qkv", conv_qkv_complaint},
      {"delta_rule", [](const Table& table) { return delta_rule_complaint(table, 1e-6, 1e-6); }},
      {"delta_rule in chunks",
       [](const Table& table) { return delta_rule_complaint(table, 1.5e-6, 1e-5); }},
      {"logits", all_logits_complaint},
      {"logits after several pieces", continued_logits_complaint},
  };
  return all;
}

const std::vector<Comparison>& invariance_comparisons() {
  static const std::vector<Comparison> all = {
      {"any pieces", [](const Table& table) { return in_tiny(table, some_pieces_complaint, 130); }},
      {"any threads", [](const Table& table) { return in_tiny(table, threads_complaint, 130); }},
      {"packed with others",
       [](const Table& table) { return in_tiny(table, packed_complaint, 203); }},
  };
  return all;
}

const Comparison& comparison(const std::string& name) {
  for (const auto* kind : {&reference_comparisons(), &invariance_comparisons()}) {
    for (const Comparison& one : *kind) {
      if (one.name == name) return one;
    }
  }
  throw std::invalid_argument("no comparison \"" + name + "\"");
}

SmallModel small_model(const std::string& name, std::optional<DType> dtype) {
  Goldens goldens = load_goldens(name + ".safetensors");
  std::vector<int> ids = goldens.ints("ids");
  return {name, load_model("checkpoints/" + name, dtype), std::move(goldens), std::move(ids)};
}

const std::vector<std::string>& small_models() {
  static const std::vector<std::string> names = {"tiny",    "grouped", "untied", "pattern",
                                                 "wrapper", "sharded", "bf16",   "f16",
                                                 "qwen3",   "llama"};
  return names;
}

Tensor2 logits_of(const Model& model, const Ops& ops, std::span<const int> ids,
                  const std::vector<int>& pieces, State& state) {
  Tensor2 all = uninit(ids.size(), model.config.vocab_size);
  int first = 0;
  for (const int rows : pieces) {
    const Share<State> alone{&state, rows};
    const Tensor2 logits =
        head(model, ops, hidden_states(model, ops, ids.subspan(first, rows), {&alone, 1}));
    std::copy_n(logits.data(), logits.size(), row(all, first));
    first += rows;
  }
  return all;
}

Tensor2 logits_of(const Model& model, const Ops& ops, std::span<const int> ids,
                  const std::vector<int>& pieces) {
  State state = empty_state(model.config);
  return logits_of(model, ops, ids, pieces, state);
}

std::string logits_complaint(const SmallModel& small, const Ops& ops, double tolerance) {
  const auto best = [](const Tensor2& row) {
    return std::max_element(row.begin(), row.end()) - row.begin();
  };
  for (const int T : kLengths) {
    State state = empty_state(small.model.config);
    const Tensor2 logits = forward(small.model, ops, std::span(small.ids).first(T), state);
    const std::string name = small.name + " logits." + std::to_string(T);
    const Tensor2 expected = reshape(small.goldens.tensor<1>("logits." + std::to_string(T)), 1,
                                     small.model.config.vocab_size);
    const std::string found = difference(name, logits, expected, tolerance);
    if (!found.empty()) return found;
    if (best(logits) != best(expected)) return name + ": another token is the best";
  }
  return "";
}

std::string pieces_complaint(const Model& model, const Ops& ops, std::span<const int> ids,
                             const std::vector<std::vector<int>>& ways) {
  State state = empty_state(model.config);
  const Tensor2 expected = logits_of(model, ops, ids, {static_cast<int>(ids.size())}, state);
  for (const std::vector<int>& pieces : ways) {
    std::string name = "pieces";
    for (const int rows : pieces) name.append(" ").append(std::to_string(rows));
    State moved = empty_state(model.config);
    const Tensor2 logits = logits_of(model, ops, ids, pieces, moved);
    const std::string found =
        first_of({bit_difference(name, logits, expected), state_difference(moved, state)});
    if (!found.empty()) return found;
  }
  return "";
}

std::string threads_complaint(const Model& model, const Ops& ops, std::span<const int> ids) {
  const int before = thread_count();
  std::string found;
  Tensor2 expected;
  for (const int threads : {1, 2, 3, 5}) {
    set_thread_count(threads);
    const Tensor2 logits = logits_of(model, ops, ids, {static_cast<int>(ids.size()) - 1, 1});
    if (threads == 1) expected = logits;
    if (found.empty()) {
      found = bit_difference(std::to_string(threads) + " threads", logits, expected);
    }
  }
  set_thread_count(before);
  return found;
}

std::string packed_complaint(const Model& model, const Ops& ops, std::span<const int> ids) {
  // Where each sequence stands, and how many rows it brings: a prefill, two that go on, one token.
  struct Part {
    int position, rows;
  };
  std::vector<int> packed;
  std::vector<State> states, states_alone;
  std::vector<Tensor2> expected;
  const std::vector<Part> parts = {{0, 66}, {65, 1}, {3, 9}, {130, 1}, {2, 2}};
  for (const Part& part : parts) {
    const std::span<const int> own = ids.subspan(part.rows, part.position + part.rows);
    State state = empty_state(model.config);
    if (part.position > 0) forward(model, ops, own.first(part.position), state);
    states.push_back(state);
    const std::span<const int> rest = own.subspan(part.position);
    packed.insert(packed.end(), rest.begin(), rest.end());
    expected.push_back(forward(model, ops, rest, state));
    states_alone.push_back(std::move(state));
  }
  std::vector<Share<State>> shares;
  for (std::size_t i = 0; i < parts.size(); ++i) shares.push_back({&states[i], parts[i].rows});
  const Tensor2 logits = forward(model, ops, packed, shares);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string name = "sequence " + std::to_string(i);
    const std::string found =
        first_of({bit_difference(name, slice(logits, static_cast<int>(i), 1), expected[i]),
                  state_difference(states[i], states_alone[i])});
    if (!found.empty()) return found;
  }
  return "";
}

std::string state_difference(const State& actual, const State& expected) {
  if (actual.position != expected.position) {
    return "position " + std::to_string(actual.position) + ", expected " +
           std::to_string(expected.position);
  }
  for (std::size_t i = 0; i < expected.layers.size(); ++i) {
    const std::string layer = "state of layer " + std::to_string(i) + ", ";
    std::string found;
    if (const auto* kv = std::get_if<KVCache>(&expected.layers[i])) {
      const KVCache& own = std::get<KVCache>(actual.layers[i]);
      if (own.length != kv->length) return layer + "length";
      if (kv->length == 0) continue;
      found = first_of({bit_difference(layer + "keys", first_rows(own.keys, kv->length),
                                       first_rows(kv->keys, kv->length)),
                        bit_difference(layer + "values", first_rows(own.values, kv->length),
                                       first_rows(kv->values, kv->length))});
    } else {
      const DeltaState &delta = std::get<DeltaState>(expected.layers[i]),
                       &own = std::get<DeltaState>(actual.layers[i]);
      found = first_of({bit_difference(layer + "S", own.S, delta.S),
                        bit_difference(layer + "tail", own.tail, delta.tail)});
    }
    if (!found.empty()) return found;
  }
  return "";
}

std::vector<std::vector<int>> all_pieces(int n) {
  std::vector<std::vector<int>> ways;
  for (unsigned cuts = 0; cuts < 1u << (n - 1); ++cuts) {
    std::vector<int> pieces = {1};
    for (int i = 0; i < n - 1; ++i) {
      if (cuts >> i & 1) {
        pieces.push_back(1);
      } else {
        ++pieces.back();
      }
    }
    ways.push_back(std::move(pieces));
  }
  return ways;
}

}  // namespace qwen
