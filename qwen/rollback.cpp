#include "qwen/rollback.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace qwen {
namespace {

Tensor3 first_rows(const Tensor3& x, int count) {
  Tensor3 part = uninit(count, dim(x, 1), dim(x, 2));
  std::copy_n(x.data(), part.size(), part.data());
  return part;
}

// The state before the call, moved on by its first `kept` rows.
void replay(const Ops& ops, const DeltaRecord& record, int kept, DeltaState& state) {
  state.tail = record.tail;
  move_tail(slice(record.in, 0, kept), state.tail);
  state.S = record.S;
  const Qkv qkv{first_rows(record.qkv.q, kept), first_rows(record.qkv.k, kept),
                first_rows(record.qkv.v, kept)};
  ops.delta_rule(qkv, slice(record.g, 0, kept), slice(record.beta, 0, kept), record.key_head,
                 state.S);
}

// The rows of the recorded call that stay when the last `dropped` go.
int rows_kept(const Record& record, int dropped) {
  return dim(record.layers.front().in, 0) - dropped;
}

}  // namespace

Ops recording_ops(const Ops& ops, Record& record) {
  Ops recording = ops;
  recording.begin_layer = [&record, begin = ops.begin_layer](int layer) {
    if (layer == 0) record.layers.clear();  // another call
    begin(layer);
  };
  recording.conv_qkv = [&record, conv_qkv = ops.conv_qkv](const Tensor2& in, const Tensor2& kernel,
                                                          const Ops::Heads& heads, Tensor2& tail) {
    DeltaRecord& layer = record.layers.emplace_back();
    layer.tail = tail;
    layer.in = in;
    return conv_qkv(in, kernel, heads, tail);
  };
  recording.delta_rule = [&record, delta_rule = ops.delta_rule](
                             const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                             const std::vector<int>& key_head, Tensor3& S) {
    DeltaRecord& layer = record.layers.back();
    layer.S = S;
    layer.qkv = qkv;
    layer.g = g;
    layer.beta = beta;
    layer.key_head = key_head;
    return delta_rule(qkv, g, beta, key_head, S);
  };
  return recording;
}

void roll_back(const Ops& ops, const Record& record, State& state, int position) {
  const int dropped = state.position - position;
  if (dropped == 0) return;
  if (dropped < 0 || position < 1 || (!record.layers.empty() && rows_kept(record, dropped) < 1)) {
    throw std::invalid_argument("[roll_back] position " + std::to_string(position) +
                                " is not behind the first row of the call that ended at " +
                                std::to_string(state.position));
  }
  auto next = record.layers.begin();
  for (LayerState& layer : state.layers) {
    if (auto* kv = std::get_if<KVCache>(&layer)) {
      truncate(*kv, position);
    } else {
      replay(ops, *next++, rows_kept(record, dropped), std::get<DeltaState>(layer));
    }
  }
  state.position = position;
}

}  // namespace qwen
