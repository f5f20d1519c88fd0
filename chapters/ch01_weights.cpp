// Chapter 1. What is in a checkpoint?
//
// New modules: safetensors and gguf (files whose tensors are used where they lie), config (what the
// numbers mean), weights (a tensor by name). The program lists every tensor, counts parameters by
// kind, and counts them again from the config alone: both must give the same.
#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "qwen/config.h"
#include "qwen/printable.h"
#include "qwen/program.h"
#include "qwen/weights.h"

using namespace qwen;

namespace {

enum Kind { embedding, deltanet, attention, mlp, norms, head, mtp, pictures, kinds };
constexpr const char* kNames[kinds] = {"embedding", "DeltaNet", "attention", "MLP",
                                       "norms",     "head",     "MTP",       "pictures"};
using Counts = std::array<std::size_t, kinds>;

Kind kind_of(const std::string& name) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (name.starts_with("model.visual.")) return pictures;
  if (name.starts_with("mtp.")) return mtp;
  if (has("embed_tokens")) return embedding;
  if (has("lm_head")) return head;
  if (has(".linear_attn.")) return deltanet;
  if (has(".self_attn.")) return attention;
  return has(".mlp.") ? mlp : norms;
}

// What the config says a checkpoint holds, in parameters.
Counts count_by_config(const Config& c, bool has_head, bool has_mtp) {
  const std::size_t hidden = c.hidden_size, vocab = c.vocab_size;
  const std::size_t q = c.num_attention_heads * c.head_dim, kv = c.num_key_value_heads * c.head_dim;
  const std::size_t full_attention =
      hidden * (q * (c.attn_output_gate ? 2 : 1) + 2 * kv + q) + (c.qk_norm ? 2 * c.head_dim : 0);
  const std::size_t Hv = c.linear_num_value_heads, v = Hv * c.linear_value_head_dim;
  const std::size_t channels = 2 * c.linear_num_key_heads * c.linear_key_head_dim + v;
  const std::size_t linear_attention = hidden * (channels + v + Hv + Hv + v) +
                                       channels * c.linear_conv_kernel_dim + 2 * Hv +
                                       c.linear_value_head_dim;
  const std::size_t feed_forward = 3 * hidden * c.intermediate_size;
  const std::size_t layers = c.num_hidden_layers;
  const std::size_t linear_layers =
      std::count(c.layer_types.begin(), c.layer_types.end(), LayerType::linear_attention);

  Counts counts{};
  counts[embedding] = vocab * hidden;
  counts[deltanet] = linear_layers * linear_attention;
  counts[attention] = (layers - linear_layers) * full_attention;
  counts[mlp] = layers * feed_forward;
  counts[norms] = (2 * layers + 1) * hidden;
  if (has_head) counts[head] = vocab * hidden;
  if (has_mtp) counts[mtp] = hidden * 2 * hidden + full_attention + feed_forward + 5 * hidden;
  return counts;
}

std::size_t elements(const StoredTensor& tensor) {
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::size_t{1},
                         std::multiplies<>());
}

std::size_t sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

std::string bracketed(const std::vector<std::size_t>& shape) {
  std::string text;
  for (const std::size_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

// Layer 2 before layer 10: a shorter number is a smaller one.
bool in_order(const StoredTensor* a, const StoredTensor* b) {
  const std::string digits = "0123456789";
  const std::size_t i = a->name.find_first_of(digits), j = b->name.find_first_of(digits);
  if (i != j || i == std::string::npos || a->name.compare(0, i, b->name, 0, i) != 0) {
    return a->name < b->name;
  }
  const std::size_t end_a = a->name.find_first_not_of(digits, i);
  const std::size_t end_b = b->name.find_first_not_of(digits, i);
  return end_a != end_b ? end_a < end_b : a->name < b->name;
}

struct Sums {
  Counts parameters{}, bytes{};  // by kind
};

// Prints a line for each tensor.
Sums list_tensors(const Checkpoint& checkpoint) {
  std::vector<const StoredTensor*> tensors;
  for (const auto& [name, tensor] : checkpoint.tensors) tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(), in_order);

  Sums sums;
  std::printf("%-48s %-5s %-14s %10s\n", "tensor", "dtype", "shape", "bytes");
  for (const StoredTensor* tensor : tensors) {
    const std::size_t size = stored_bytes(tensor->dtype, elements(*tensor));
    std::printf("%-48s %-5s %-14s %10zu\n", on_one_line(tensor->name).c_str(),
                format(tensor->dtype).name, bracketed(tensor->shape).c_str(), size);
    sums.parameters[kind_of(tensor->name)] += elements(*tensor);
    sums.bytes[kind_of(tensor->name)] += size;
  }
  return sums;
}

void print_row(const char* name, std::size_t found, std::size_t expected, std::size_t bytes) {
  std::printf("%-10s %13zu %13zu %13zu\n", name, found, expected, bytes);
}

void compare(const Sums& found, const Counts& expected) {
  std::printf("\n%-10s %13s %13s %13s\n", "kind", "parameters", "by config", "bytes");
  for (int kind = 0; kind < kinds; ++kind) {
    if (found.parameters[kind] == 0 && expected[kind] == 0) continue;
    print_row(kNames[kind], found.parameters[kind], expected[kind], found.bytes[kind]);
  }
  print_row("all", sum(found.parameters), sum(expected), sum(found.bytes));
}

void show(const std::string& path) {
  std::cerr << "reading " << on_one_line(path) << '\n';
  const Config config = read_config(path);
  const Checkpoint checkpoint = open_checkpoint(path);
  for (const std::string& remark : config.remarks) std::cerr << on_one_line(remark) << '\n';
  for (const std::string& remark : checkpoint.remarks) std::cerr << on_one_line(remark) << '\n';

  const Sums found = list_tensors(checkpoint);
  const bool has_head = found.parameters[head] > 0, has_mtp = found.parameters[mtp] > 0;
  Counts expected = count_by_config(config, has_head, has_mtp);
  expected[pictures] = found.parameters[pictures];  // of these the text config says nothing
  compare(found, expected);

  std::printf("\nA %s of %d layers. The config %s every parameter of the %zu tensors.\n",
              config.model_type.c_str(), config.num_hidden_layers,
              found.parameters == expected ? "accounts for" : "does not account for",
              checkpoint.tensors.size());
  std::printf("The head is %s.\n",
              has_head ? "a matrix of its own" : "the embedding table once more (tied)");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Chapter 1: every tensor of a checkpoint, and the sums against its config."};
  std::string model;
  add_model_option(app, model);
  return run_program(app, argc, argv, [&] { show(model); });
}
