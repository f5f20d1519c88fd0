#include "qwen/model.h"

#include <algorithm>
#include <stdexcept>

#include "qwen/embedding.h"
#include "qwen/simd.h"

namespace qwen {
namespace {

void check_call(const Config& config, std::span<const int> ids,
                std::span<const Share<State>> shares) {
  std::size_t rows = 0;
  for (const Share<State>& share : shares)
    rows += static_cast<std::size_t>(std::max(share.rows, 0));
  if (rows != ids.size() || shares.empty()) {
    throw std::invalid_argument("[forward] " + std::to_string(ids.size()) + " ids for " +
                                std::to_string(rows) + " rows of " + std::to_string(shares.size()) +
                                " sequences");
  }
  for (const Share<State>& share : shares) {
    const std::size_t own = static_cast<std::size_t>(std::max(share.rows, 0));
    check_tokens(config, ids.first(own), share.state->position);
    ids = ids.subspan(own);
  }
}

// A finite x times 0 is 0; infinity and NaN give NaN, which no sum loses again.
bool is_finite(const Tensor2& x) {
  simd::Vec zero{};
  const float* p = x.data();
  const std::size_t size = x.size(), whole = size / simd::kLanes * simd::kLanes;
  for (std::size_t i = 0; i < whole; i += simd::kLanes) zero += simd::load(p + i) * 0.0f;
  zero += simd::load_first(p + whole, static_cast<int>(size - whole)) * 0.0f;
  return simd::sum(zero) == 0;
}

// The first of so many rows' values that is not finite, in one line; empty where all are.
std::string fault_in(const Tensor2& x, int first, int rows, const std::string& where) {
  for (int t = 0; t < rows; ++t) {
    for (int i = 0; i < dim(x, 1); ++i) {
      if (std::isfinite(x(first + t, i))) continue;
      return "[forward] " + where + ": row " + std::to_string(t) + ", column " + std::to_string(i) +
             " is " + std::to_string(x(first + t, i)) +
             "; a weight is not finite, or a value has overflowed";
    }
  }
  return "";
}

// Tells of shares with values that are not finite. Their rows become zeros, with which all that
// follows is defined.
void check_finite(Tensor2& x, const std::vector<int>& rows, const std::string& where,
                  const OnFault& on_fault) {
  if (is_finite(x)) return;
  int first = 0;
  for (std::size_t share = 0; share < rows.size(); first += rows[share++]) {
    const std::string fault = fault_in(x, first, rows[share], where);
    if (fault.empty()) continue;
    on_fault(share, fault);
    std::fill_n(row(x, first), rows[share] * dim(x, 1), 0.0f);
  }
}

// hidden [T, hidden_size] -> [shares, hidden_size], the last row of each share.
Tensor2 last_rows(const Tensor2& hidden, std::span<const Share<State>> shares) {
  const int H = dim(hidden, 1);
  Tensor2 last = uninit(shares.size(), H);
  int end = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    end += shares[i].rows;
    std::copy_n(row(hidden, end - 1), H, row(last, static_cast<int>(i)));
  }
  return last;
}

}  // namespace

void expect_finite(const Tensor2& x, const std::string& where) {
  if (!is_finite(x)) throw std::runtime_error(fault_in(x, 0, dim(x, 0), where));
}

void throw_fault(std::size_t, const std::string& what) {
  throw std::runtime_error(what);
}

void check_tokens(const Config& config, std::span<const int> ids, int position) {
  if (ids.empty()) throw std::invalid_argument("[forward] no tokens: at least 1 is needed");
  const int limit = config.max_position_embeddings;
  if (ids.size() > static_cast<std::size_t>(limit - position)) {
    throw std::invalid_argument("[forward] " + std::to_string(ids.size()) + " more tokens after " +
                                std::to_string(position) +
                                " do not fit into the model's context of " + std::to_string(limit) +
                                " (max_position_embeddings)");
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < config.vocab_size) continue;
    throw std::invalid_argument(
        "[forward] token id " + std::to_string(ids[i]) + " at position " +
        std::to_string(position + i) +
        " is not one of 0 to vocab_size - 1 = " + std::to_string(config.vocab_size - 1));
  }
}

State empty_state(const Config& config) {
  State state;
  for (LayerType type : config.layer_types) {
    state.layers.push_back(empty_layer_state(config, type));
  }
  return state;
}

Tensor2 hidden_states(const Model& model, const Ops& ops, std::span<const int> ids,
                      std::span<const Share<State>> shares, const OnFault& on_fault) {
  check_call(model.config, ids, shares);
  std::vector<int> rows;
  for (const Share<State>& share : shares) rows.push_back(share.rows);
  Tensor2 x = embed(model.embed_tokens, ids);
  check_finite(x, rows, "embed_tokens", on_fault);
  std::vector<Share<LayerState>> layer_shares(shares.size());
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
    ops.begin_layer(static_cast<int>(layer));
    for (std::size_t i = 0; i < shares.size(); ++i) {
      layer_shares[i] = {&shares[i].state->layers[layer], shares[i].rows};
    }
    layer_forward(ops, model.config, model.layers[layer], layer_shares, x);
    check_finite(x, rows, "layer " + std::to_string(layer), on_fault);
  }
  for (const Share<State>& share : shares) share.state->position += share.rows;
  ops.begin_layer(-1);
  x = ops.rms_norm(x, model.norm, model.config.rms_norm_eps);
  check_finite(x, rows, "the final norm", on_fault);
  return x;
}

Tensor2 head(const Model& model, const Ops& ops, const Tensor2& hidden, const OnFault& on_fault) {
  Tensor2 logits = ops.linear(hidden, model.lm_head);
  check_finite(logits, std::vector<int>(dim(logits, 0), 1), "the head", on_fault);
  return logits;
}

Tensor2 forward(const Model& model, const Ops& ops, std::span<const int> ids,
                std::span<const Share<State>> shares) {
  return head(model, ops, last_rows(hidden_states(model, ops, ids, shares), shares));
}

Tensor2 forward(const Model& model, const Ops& ops, std::span<const int> ids, State& state) {
  const Share<State> alone{&state, static_cast<int>(ids.size())};
  return forward(model, ops, ids, {&alone, 1});
}

int argmax(const Tensor2& logits) {
  return static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace qwen
