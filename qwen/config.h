// The shape of a model: config.json, or the metadata of a GGUF file, as one plain struct.
#pragma once

#include <string>
#include <vector>

namespace qwen {

enum class LayerType { linear_attention, full_attention };

// Field names are the keys of config.json; what a family does not have is off or 0.
struct Config {
  std::string model_type;  // "qwen3_5_text", "qwen3" or "llama"
  int vocab_size = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_hidden_layers = 0;
  float rms_norm_eps = 0;
  bool tie_word_embeddings = false;  // what the config says; the file decides (model.h)
  int max_position_embeddings = 0;
  std::vector<int> eos_token_id;  // generation ends at any of them

  // Full attention (chapter 6).
  int num_attention_heads = 0;
  int num_key_value_heads = 0;
  int head_dim = 0;
  double rope_theta = 0;
  double partial_rotary_factor = 1;  // share of head_dim that is rotated

  // Gated DeltaNet (chapter 7); 0 in models without it.
  int linear_num_key_heads = 0;
  int linear_num_value_heads = 0;
  int linear_key_head_dim = 0;
  int linear_value_head_dim = 0;
  int linear_conv_kernel_dim = 0;

  std::vector<LayerType> layer_types;  // [num_hidden_layers]
  int mtp_num_hidden_layers = 0;

  // What sets the three families apart: qwen3_5 has all of them, qwen3 has qk_norm, llama none.
  bool norm_is_zero_centred = false;  // norms scale by 1 + weight
  bool qk_norm = false;               // q and k of every head are normalised
  bool attn_output_gate = false;      // q_proj also gives a gate for the attention's output

  std::vector<std::string> remarks;  // worth telling the user: conflicting keys and the like
};

// Dimensions of the rotated part of a head: partial_rotary_factor * head_dim, an even number.
int rotary_dim(const Config& config);

// Reads the config of a checkpoint: config.json (and generation_config.json) beside the
// safetensors, or the metadata of a GGUF file. `path` as for open_checkpoint.
// std::runtime_error, one line, naming the key that is missing, unknown or out of range.
Config read_config(const std::string& path);

}  // namespace qwen
