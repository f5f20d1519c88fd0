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

double head_matrix(const Config& c) {
  return static_cast<double>(c.vocab_size) * c.hidden_size;
}

// Products of `rows` rows with matrices of that many elements.
Cost product_cost(double elements, DType dtype, double rows) {
  Cost cost;
  cost.weight_bytes = elements * format(dtype).block_bytes / format(dtype).block_values;
  cost.linear_operations = 2 * elements * rows;
  return cost;
}

}  // namespace

double parameter_count(const Config& c) {
  const double full = count(c, LayerType::full_attention);
  const double linear = count(c, LayerType::linear_attention);
  const double table = head_matrix(c);
  const double small_of_linear = channels(c) * c.linear_conv_kernel_dim +
                                 2.0 * c.linear_num_value_heads + c.linear_value_head_dim;
  return table * (c.tie_word_embeddings ? 1 : 2) + full * attention_matrices(c) +
         linear * deltanet_matrices(c) + full * (c.qk_norm ? 2.0 * c.head_dim : 0) +
         linear * small_of_linear + (2 * (full + linear) + 1) * c.hidden_size;
}

Cost total(const OperatorCosts& costs) {
  Cost sum;
  for (const auto& [name, cost] : costs) {
    sum.weight_bytes += cost.weight_bytes;
    sum.state_bytes += cost.state_bytes;
    sum.linear_operations += cost.linear_operations;
    sum.other_operations += cost.other_operations;
  }
  return sum;
}

OperatorCosts operator_costs(const Config& c, DType dtype, int tokens, int position) {
  const double full = count(c, LayerType::full_attention);
  const double linear = count(c, LayerType::linear_attention);
  const double T = tokens;
  OperatorCosts costs;
  costs["linear"] =
      product_cost(full * attention_matrices(c) + linear * deltanet_matrices(c), dtype, T);
  costs["head"] = product_cost(head_matrix(c), dtype, 1);

  const double kv_row = 2.0 * c.num_key_value_heads * c.head_dim;  // floats of one token
  const double pairs = T * position + T * (T + 1) / 2;             // of a query and a key it sees
  Cost& attention = costs["attention"];
  attention.state_bytes = full * kv_row * (position + T) * sizeof(float);
  attention.other_operations = full * 4.0 * c.num_attention_heads * c.head_dim * pairs;

  Cost& delta_rule = costs["delta_rule"];
  delta_rule.state_bytes = linear * 2 * state_size(c) * sizeof(float);
  delta_rule.other_operations =
      linear * T * 2 * c.linear_num_value_heads *
      recurrent_multiply_adds(c.linear_key_head_dim, c.linear_value_head_dim);

  Cost& conv_qkv = costs["conv_qkv"];
  const double tail = channels(c) * (c.linear_conv_kernel_dim - 1);
  conv_qkv.state_bytes = linear * 2 * tail * sizeof(float);
  conv_qkv.other_operations = linear * T * 2 * channels(c) * c.linear_conv_kernel_dim;
  return costs;
}

Cost forward_cost(const Config& config, DType dtype, int tokens, int position) {
  return total(operator_costs(config, dtype, tokens, position));
}

OperatorCosts batch_costs(const Config& config, DType dtype, int batch, int position) {
  OperatorCosts costs = operator_costs(config, dtype, 1, position);
  for (auto& [name, cost] : costs) {
    cost.state_bytes *= batch;
    cost.linear_operations *= batch;
    cost.other_operations *= batch;
  }
  return costs;
}

OperatorCosts round_costs(const Config& c, DType dtype, int drafts, int position) {
  OperatorCosts costs = operator_costs(c, dtype, drafts + 1, position);
  costs["head"].linear_operations *= drafts + 1;
  const double merging = 2.0 * c.hidden_size * c.hidden_size;  // embedding and hidden state
  Cost& guesses = costs["guesses"];
  guesses = product_cost(merging + attention_matrices(c) + head_matrix(c), dtype, 1);
  guesses.weight_bytes *= drafts;
  guesses.linear_operations *= drafts;
  return costs;
}

double recurrent_multiply_adds(int Dk, int Dv) {
  return 4.0 * Dk * Dv;
}

double chunked_multiply_adds(int Dk, int Dv, int C) {
  const double recall_and_read = 2.0 * Dk * Dv;  // [K; Q] S
  const double keys_meet = 2.0 * C * Dk;         // [K; Q] K^T
  const double substitution = (C - 1) / 2.0 * Dv;
  const double inside = 1.0 * C * Dv;  // W D
  const double write = 1.0 * Dk * Dv;  // K^T D
  const double forget = write / C;     // S = exp(G) S, once a chunk
  return recall_and_read + keys_meet + substitution + inside + write + forget;
}

}  // namespace qwen
