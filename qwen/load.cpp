#include "qwen/load.h"

#include <cmath>
#include <set>
#include <stdexcept>
#include <utility>

#include "qwen/parallel.h"
#include "qwen/printable.h"

namespace qwen {
namespace {

// Takes tensors out of a checkpoint, and remembers which.
class Loader {
 public:
  Loader(const Checkpoint& checkpoint, const Config& config)
      : checkpoint_(checkpoint), config_(config) {}

  Model model() {
    const int V = config_.vocab_size, H = config_.hidden_size;
    Model model;
    model.config = config_;
    model.embed_tokens = take("model.embed_tokens.weight", V, H);
    for (int i = 0; i < config_.num_hidden_layers; ++i) {
      const std::string at = "model.layers." + std::to_string(i) + ".";
      model.layers.push_back(layer(at, config_.layer_types[i]));
    }
    model.norm = norm("model.norm.weight", H);
    // The file decides whether the head is tied, not the config.
    const bool own_head = checkpoint_.tensors.contains("lm_head.weight");
    model.lm_head = own_head ? take("lm_head.weight", V, H) : model.embed_tokens;
    if (own_head && config_.tie_word_embeddings) {
      model.remarks.push_back(
          "the config says tie_word_embeddings, but the file has a lm_head.weight: it is used");
    }
    if (!own_head && !config_.tie_word_embeddings) {
      model.remarks.push_back(
          "the config says tie_word_embeddings is false, but the file has no lm_head.weight: the "
          "embedding is used");
    }
    expect_nothing_left();
    return model;
  }

  // A norm's scale: the stored weight, or 1 + weight where it is stored around zero.
  Tensor1 norm(const std::string& name, int size) {
    Tensor1 weight = values(name, {size});
    if (config_.norm_is_zero_centred && !checkpoint_.conventions.norms_are_shifted) weight += 1.0f;
    return weight;
  }

  Layer layer(const std::string& at, LayerType type) {
    const int H = config_.hidden_size, I = config_.intermediate_size;
    Layer layer;
    layer.input_layernorm = norm(at + "input_layernorm.weight", H);
    layer.post_attention_layernorm = norm(at + "post_attention_layernorm.weight", H);
    if (type == LayerType::full_attention) {
      layer.mixer = attention(at + "self_attn.");
    } else {
      layer.mixer = deltanet(at + "linear_attn.");
    }
    layer.mlp.gate_proj = take(at + "mlp.gate_proj.weight", I, H);
    layer.mlp.up_proj = take(at + "mlp.up_proj.weight", I, H);
    layer.mlp.down_proj = take(at + "mlp.down_proj.weight", H, I);
    return layer;
  }

 private:
  // A matrix, by name and by the shape it must have.
  Weight take(const std::string& name, int rows, int cols) {
    used_.insert(name);
    return matrix(checkpoint_, name, rows, cols);
  }

  // A small parameter, as floats. An infinite one could hide: a decay of 0 looks like any other.
  Tensor1 values(const std::string& name, std::initializer_list<int> shape) {
    used_.insert(name);
    Tensor1 all = vector(checkpoint_, name, shape);
    expect_finite(name, all);
    return all;
  }

  // The matrices that make the gates, for the same reason.
  Weight take_finite(const std::string& name, int rows, int cols) {
    const Weight w = take(name, rows, cols);
    Tensor1 row_n = uninit(cols);
    for (int n = 0; n < rows; ++n) {
      to_float(w.dtype, row(w, n), row_n.size(), row_n.data());
      expect_finite(name, row_n);
    }
    return w;
  }

  void expect_finite(const std::string& name, const Tensor1& all) const {
    for (const float value : all) {
      if (std::isfinite(value)) continue;
      throw std::runtime_error(find(checkpoint_, name).file + ": tensor " + name + " holds " +
                               std::to_string(value) + ", expected finite numbers");
    }
  }

  Attention attention(const std::string& at) {
    const int H = config_.hidden_size, D = config_.head_dim;
    const int Hq = config_.num_attention_heads, Hkv = config_.num_key_value_heads;
    Attention weights;
    weights.q_proj = take(at + "q_proj.weight", Hq * D * (config_.attn_output_gate ? 2 : 1), H);
    weights.k_proj = take(at + "k_proj.weight", Hkv * D, H);
    weights.v_proj = take(at + "v_proj.weight", Hkv * D, H);
    weights.o_proj = take(at + "o_proj.weight", H, Hq * D);
    if (config_.qk_norm) {
      weights.q_norm = norm(at + "q_norm.weight", D);
      weights.k_norm = norm(at + "k_norm.weight", D);
    }
    if (checkpoint_.conventions.qk_rows_are_interleaved) {
      weights.q_proj.order = interleaved_rows(Hq, D);
      weights.k_proj.order = interleaved_rows(Hkv, D);
    }
    return weights;
  }

  // Where row (head, half, i) of the model lies in a file whose rows stand as RoPE pairs.
  static std::shared_ptr<const std::vector<int>> interleaved_rows(int heads, int D) {
    auto order = std::make_shared<std::vector<int>>();
    for (int head = 0; head < heads; ++head) {
      for (int half = 0; half < 2; ++half) {
        for (int i = 0; i < D / 2; ++i) order->push_back(head * D + 2 * i + half);
      }
    }
    return order;
  }

  DeltaNet deltanet(const std::string& at) {
    const int H = config_.hidden_size, width = config_.linear_conv_kernel_dim;
    const int Hk = config_.linear_num_key_heads, Dk = config_.linear_key_head_dim;
    const int Hv = config_.linear_num_value_heads, Dv = config_.linear_value_head_dim;
    const int C = 2 * Hk * Dk + Hv * Dv;
    DeltaNet weights;
    weights.in_proj_qkv = take(at + "in_proj_qkv.weight", C, H);
    weights.in_proj_z = take(at + "in_proj_z.weight", Hv * Dv, H);
    weights.in_proj_a = take_finite(at + "in_proj_a.weight", Hv, H);
    weights.in_proj_b = take_finite(at + "in_proj_b.weight", Hv, H);
    weights.out_proj = take(at + "out_proj.weight", H, Hv * Dv);
    weights.conv1d = by_tap(values(at + "conv1d.weight", {C, 1, width}), width);
    weights.A = values(at + "A_log", {Hv});
    if (!checkpoint_.conventions.A_is_exponential) {
      for (float& A : weights.A) A = static_cast<float>(-std::exp(double{A}));
    }
    weights.dt_bias = values(at + "dt_bias", {Hv});
    weights.norm = values(at + "norm.weight", {Dv});  // never zero-centred
    // Every key head serves Hv / Hk value heads: neighbours, or every Hk-th where the file lays
    // the value heads out in tiles. Nothing else depends on their order, so none is moved.
    const bool tiled = checkpoint_.conventions.value_heads_are_tiled;
    for (int h = 0; h < Hv; ++h) weights.key_head.push_back(tiled ? h % Hk : h / (Hv / Hk));
    return weights;
  }

  void expect_nothing_left() const {
    for (const auto& [name, tensor] : checkpoint_.tensors) {
      const bool not_text = name.starts_with("model.visual.");
      if (used_.contains(name) || not_text || name.starts_with("mtp.")) continue;
      throw std::runtime_error(tensor.file + ": tensor " + in_quotes(name) +
                               " has no place in a model of type " + config_.model_type +
                               "; is the config the one that belongs to this file?");
    }
  }

  const Checkpoint& checkpoint_;
  const Config& config_;
  std::set<std::string> used_;
};

void add_matrices(Layer& layer, std::vector<Weight*>& all) {
  if (auto* a = std::get_if<Attention>(&layer.mixer)) {
    all.insert(all.end(), {&a->q_proj, &a->k_proj, &a->v_proj, &a->o_proj});
  } else {
    auto& d = std::get<DeltaNet>(layer.mixer);
    all.insert(all.end(), {&d.in_proj_qkv, &d.in_proj_z, &d.in_proj_a, &d.in_proj_b, &d.out_proj});
  }
  all.insert(all.end(), {&layer.mlp.gate_proj, &layer.mlp.up_proj, &layer.mlp.down_proj});
}

// Every matrix of the model, the head only where it is its own.
std::vector<Weight*> matrices(Model& model) {
  std::vector<Weight*> all = {&model.embed_tokens};
  for (Layer& layer : model.layers) add_matrices(layer, all);
  if (model.lm_head.data != model.embed_tokens.data) all.push_back(&model.lm_head);
  return all;
}

void convert_matrices(const std::vector<Weight*>& all, std::optional<DType> dtype) {
  parallel_for(static_cast<int>(all.size()), 1, [&](int i, int) {
    Weight& w = *all[i];
    // Block formats have no kernel of their own yet: they are unpacked to float32.
    if (dtype || format(w.dtype).block_values > 1) w = convert(w, dtype.value_or(DType::F32));
  });
}

}  // namespace

Model load_model(const Config& config, const Checkpoint& checkpoint, std::optional<DType> dtype) {
  Model model = Loader(checkpoint, config).model();
  const bool tied = model.lm_head.data == model.embed_tokens.data;
  convert_matrices(matrices(model), dtype);
  if (tied) model.lm_head = model.embed_tokens;
  for (const auto* more : {&config.remarks, &checkpoint.remarks}) {
    model.remarks.insert(model.remarks.end(), more->begin(), more->end());
  }
  return model;
}

Model load_model(const std::string& path, std::optional<DType> dtype) {
  return load_model(read_config(path), open_checkpoint(path), dtype);
}

Layer load_layer(const Config& config, const Checkpoint& checkpoint, const std::string& at,
                 LayerType type, std::optional<DType> dtype) {
  Layer layer = Loader(checkpoint, config).layer(at, type);
  std::vector<Weight*> all;
  add_matrices(layer, all);
  convert_matrices(all, dtype);
  return layer;
}

Tensor1 load_norm(const Config& config, const Checkpoint& checkpoint, const std::string& name) {
  return Loader(checkpoint, config).norm(name, config.hidden_size);
}

Weight load_matrix(const Checkpoint& checkpoint, const std::string& name, int rows, int cols,
                   std::optional<DType> dtype) {
  Weight w = matrix(checkpoint, name, rows, cols);
  convert_matrices({&w}, dtype);
  return w;
}

}  // namespace qwen
