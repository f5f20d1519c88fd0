#include "qwen/mtp.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "qwen/embedding.h"
#include "qwen/load.h"
#include "qwen/printable.h"
#include "qwen/shape.h"

namespace qwen {
namespace {

const std::string kPrefix = "mtp.";
const std::string kLayer = kPrefix + "layers.0.";

// What load_mtp reads.
std::set<std::string> names_of(const Mtp& mtp) {
  const auto& attention = std::get<Attention>(mtp.layer.mixer);
  std::set<std::string> names = {kPrefix + "pre_fc_norm_embedding.weight",
                                 kPrefix + "pre_fc_norm_hidden.weight", kPrefix + "norm.weight",
                                 kLayer + "input_layernorm.weight",
                                 kLayer + "post_attention_layernorm.weight"};
  for (const Weight* w :
       {&mtp.fc, &attention.q_proj, &attention.k_proj, &attention.v_proj, &attention.o_proj,
        &mtp.layer.mlp.gate_proj, &mtp.layer.mlp.up_proj, &mtp.layer.mlp.down_proj}) {
    names.insert(w->name);
  }
  if (attention.q_norm.size() > 0) {
    names.insert({kLayer + "self_attn.q_norm.weight", kLayer + "self_attn.k_norm.weight"});
  }
  return names;
}

void expect_some(const Checkpoint& checkpoint) {
  const auto first = checkpoint.tensors.lower_bound(kPrefix);
  if (first != checkpoint.tensors.end() && first->first.starts_with(kPrefix)) return;
  throw std::runtime_error(checkpoint.path +
                           ": no MTP in this checkpoint: it has no tensors mtp.*, which drafting "
                           "needs");
}

void expect_nothing_left(const Checkpoint& checkpoint, const Mtp& mtp) {
  const std::set<std::string> used = names_of(mtp);
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (!name.starts_with(kPrefix) || used.contains(name)) continue;
    throw std::runtime_error(tensor.file + ": tensor " + in_quotes(name) +
                             " has no place in an MTP of one layer that shares the model's "
                             "embedding and head");
  }
}

// a, b [T, H] -> [T, 2 H]: every row of a, and of b behind it.
Tensor2 side_by_side(const Tensor2& a, const Tensor2& b) {
  const int T = dim(a, 0), H = dim(a, 1);
  Tensor2 both = uninit(T, 2 * H);
  for (int t = 0; t < T; ++t) {
    std::copy_n(row(a, t), H, row(both, t));
    std::copy_n(row(b, t), H, row(both, t) + H);
  }
  return both;
}

}  // namespace

Mtp load_mtp(const Config& config, const Checkpoint& checkpoint, std::optional<DType> dtype) {
  expect_some(checkpoint);
  const int H = config.hidden_size;
  Mtp mtp;
  mtp.pre_fc_norm_embedding =
      load_norm(config, checkpoint, kPrefix + "pre_fc_norm_embedding.weight");
  mtp.pre_fc_norm_hidden = load_norm(config, checkpoint, kPrefix + "pre_fc_norm_hidden.weight");
  mtp.fc = load_matrix(checkpoint, kPrefix + "fc.weight", H, 2 * H, dtype);
  mtp.layer = load_layer(config, checkpoint, kLayer, LayerType::full_attention, dtype);
  mtp.norm = load_norm(config, checkpoint, kPrefix + "norm.weight");
  expect_nothing_left(checkpoint, mtp);
  return mtp;
}

LayerState empty_mtp_memory() {
  return KVCache{};
}

Tensor2 mtp_forward(const Model& model, const Ops& ops, const Mtp& mtp, const Tensor2& hidden,
                    std::span<const int> next_ids, LayerState& memory) {
  const int T = static_cast<int>(next_ids.size());
  const float eps = model.config.rms_norm_eps;
  expect_shape("[mtp_forward] hidden", hidden, {T, model.config.hidden_size});
  ops.begin_layer(model.config.num_hidden_layers);  // it comes behind the last one

  const Tensor2 embedded = embed(model.embed_tokens, next_ids);
  Tensor2 x = ops.linear(side_by_side(ops.rms_norm(embedded, mtp.pre_fc_norm_embedding, eps),
                                      ops.rms_norm(hidden, mtp.pre_fc_norm_hidden, eps)),
                         mtp.fc);
  const Share<LayerState> alone{&memory, T};
  layer_forward(ops, model.config, mtp.layer, {&alone, 1}, x);
  x = ops.rms_norm(x, mtp.norm, eps);
  expect_finite(x, "the MTP layer");
  return x;
}

}  // namespace qwen
