#include "qwen/layer.h"

namespace qwen {
namespace {

// The shares again, seen as the kind of state this layer's mixer keeps.
template <class Kind>
std::vector<Share<Kind>> states_of(std::span<const Share<LayerState>> shares) {
  std::vector<Share<Kind>> seen;
  for (const Share<LayerState>& share : shares) {
    seen.push_back({&std::get<Kind>(*share.state), share.rows});
  }
  return seen;
}

Tensor2 mixer_forward(const Ops& ops, const Config& config, const Layer& layer, const Tensor2& x,
                      std::span<const Share<LayerState>> shares) {
  if (const auto* attention = std::get_if<Attention>(&layer.mixer)) {
    return attention_forward(ops, config, *attention, x, states_of<KVCache>(shares));
  }
  const DeltaNet& deltanet = std::get<DeltaNet>(layer.mixer);
  return deltanet_forward(ops, config, deltanet, x, states_of<DeltaState>(shares));
}

}  // namespace

LayerState empty_layer_state(const Config& config, LayerType type) {
  if (type == LayerType::full_attention) return KVCache{};
  return empty_delta_state(config);
}

void layer_forward(const Ops& ops, const Config& config, const Layer& layer,
                   std::span<const Share<LayerState>> shares, Tensor2& x) {
  const float eps = config.rms_norm_eps;
  x += mixer_forward(ops, config, layer, ops.rms_norm(x, layer.input_layernorm, eps), shares);
  x += mlp_forward(ops, layer.mlp, ops.rms_norm(x, layer.post_attention_layernorm, eps));
}

}  // namespace qwen
