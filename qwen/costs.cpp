#include "qwen/costs.h"

#include <algorithm>

namespace qwen {
namespace {

// Elements of the matrices that one kind of layer multiplies with, its MLP included.
double attention_matrices(const Config& c) {
  const double q = c.num_attention_heads * c.head_dim, kv = c.num_key_value_heads * c.head_dim;
  const double mlp = 3.0 * c.hidden_size * c.intermediate_size;
  return c.hidden_size * ((c.attn_output_gate ? 2 : 1) * q + 2 * kv + q) + mlp;
}

double channels(const Config& c) {
  return 2.0 * c.linear_num_key_heads * c.linear_key_head_dim +
         c.linear_num_value_heads * c.linear_value_head_dim;
}

double deltanet_matrices(const Config& c) {
  const double v = c.linear_num_value_heads * c.linear_value_head_dim;
  const double mlp = 3.0 * c.hidden_size * c.intermediate_size;
  return c.hidden_size * (channels(c) + 2 * v + 2.0 * c.linear_num_value_heads) + mlp;
}

double count(const Config& c, LayerType type) {
  return static_cast<double>(std::count(c.layer_types.begin(), c.layer_types.end(), type));
}

// Elements of S of one layer.
double state_size(const Config& c) {
  return static_cast<double>(c.linear_num_value_heads) * c.linear_key_head_dim *
         c.linear_value_head_dim;
}

}  // namespace

double parameter_count(const Config& c) {
  const double full = count(c, LayerType::full_attention);
  const double linear = count(c, LayerType::linear_attention);
  const double table = static_cast<double>(c.vocab_size) * c.hidden_size;
  const double small_of_linear = channels(c) * c.linear_conv_kernel_dim +
                                 2.0 * c.linear_num_value_heads + c.linear_value_head_dim;
  return table * (c.tie_word_embeddings ? 1 : 2) + full * attention_matrices(c) +
         linear * deltanet_matrices(c) + full * (c.qk_norm ? 2.0 * c.head_dim : 0) +
         linear * small_of_linear + (2 * (full + linear) + 1) * c.hidden_size;
}

Cost forward_cost(const Config& c, DType dtype, int tokens, int position) {
  const double full = count(c, LayerType::full_attention);
  const double linear = count(c, LayerType::linear_attention);
  const double in_layers = full * attention_matrices(c) + linear * deltanet_matrices(c);
  const double in_head = static_cast<double>(c.vocab_size) * c.hidden_size;
  const double T = tokens;
  Cost cost;
  const Format& f = format(dtype);
  cost.weight_bytes = (in_layers + in_head) * f.block_bytes / f.block_values;
  cost.linear_operations = 2 * (in_layers * T + in_head);

  const double kv_row = 2.0 * c.num_key_value_heads * c.head_dim;  // floats of one token
  cost.state_bytes = full * kv_row * (position + T) * sizeof(float);
  const double tail = channels(c) * (c.linear_conv_kernel_dim - 1);
  cost.state_bytes += linear * 2 * (state_size(c) + tail) * sizeof(float);

  const double pairs = T * position + T * (T + 1) / 2;  // of a query and a key it sees
  cost.other_operations = full * 4.0 * c.num_attention_heads * c.head_dim * pairs;
  const double rule = c.linear_num_value_heads *
                      recurrent_multiply_adds(c.linear_key_head_dim, c.linear_value_head_dim);
  cost.other_operations += linear * T * 2 * (rule + channels(c) * c.linear_conv_kernel_dim);
  return cost;
}

double recurrent_multiply_adds(int Dk, int Dv) {
  return 4.0 * Dk * Dv;
}

double chunked_multiply_adds(int Dk, int Dv, int C) {
  const double recall_and_read = 2.0 * Dk * Dv;  // [K'; Q'] S
  const double keys_meet = 2.0 * C * Dk;         // [K; Q] K^T
  const double substitution = (C - 1) / 2.0 * Dv;
  const double inside = 1.0 * C * Dv;  // W D
  const double write = 1.0 * Dk * Dv;  // K^T D
  return recall_and_read + keys_meet + substitution + inside + write;
}

}  // namespace qwen
