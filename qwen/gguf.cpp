#include "qwen/gguf.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "qwen/gguf_metadata.h"
#include "qwen/printable.h"

namespace qwen {
namespace {

[[noreturn]] void fail(const Gguf& gguf, const std::string& why) {
  throw std::runtime_error(gguf.path + ": " + why);
}

// ---- names --------------------------------------------------------------------------------

struct Rename {
  std::string_view gguf, checkpoint;
};

constexpr Rename kModel[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
};

// After "blk.N." and "model.layers.N.".
constexpr Rename kBlock[] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},  // qwen35
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"attn_qkv.weight", "linear_attn.in_proj_qkv.weight"},
    {"attn_gate.weight", "linear_attn.in_proj_z.weight"},
    {"ssm_alpha.weight", "linear_attn.in_proj_a.weight"},
    {"ssm_beta.weight", "linear_attn.in_proj_b.weight"},
    {"ssm_conv1d.weight", "linear_attn.conv1d.weight"},
    {"ssm_a", "linear_attn.A_log"},
    {"ssm_dt.bias", "linear_attn.dt_bias"},
    {"ssm_dt", "linear_attn.dt_bias"},  // as Ollama writes it
    {"ssm_norm.weight", "linear_attn.norm.weight"},
    {"ssm_out.weight", "linear_attn.out_proj.weight"},
};

// After "blk.N.nextn." and "mtp.".
constexpr Rename kMtp[] = {
    {"eh_proj.weight", "fc.weight"},
    {"enorm.weight", "pre_fc_norm_embedding.weight"},
    {"hnorm.weight", "pre_fc_norm_hidden.weight"},
    {"shared_head_norm.weight", "norm.weight"},
};

template <std::size_t Size>
std::string renamed(const std::string& prefix, const Rename (&table)[Size], std::string_view name) {
  const auto* entry = std::find_if(std::begin(table), std::end(table),
                                   [&](const Rename& r) { return r.gguf == name; });
  return entry == std::end(table) ? "" : prefix + std::string(entry->checkpoint);
}

// "blk.12.attn_q.weight" is {12, "attn_q.weight"}.
struct BlockName {
  std::size_t block;
  std::string_view rest;
};

std::optional<BlockName> block_name(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  std::size_t block;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), block);
  if (error != std::errc() || !name.substr(end - name.data()).starts_with(".")) return std::nullopt;
  return BlockName{block, name.substr(end - name.data() + 1)};
}

constexpr std::string_view kNextn = "nextn.";

// The name in a safetensors file; empty for one that we do not know.
std::string checkpoint_name(const std::vector<GgufBlock>& blocks, std::string_view name) {
  const auto block = block_name(name);
  if (!block) return renamed("", kModel, name);
  if (block->rest.starts_with(kNextn)) {
    return renamed("mtp.", kMtp, block->rest.substr(kNextn.size()));
  }
  const bool drafts = blocks[block->block] == GgufBlock::mtp;
  const std::string layer = "model.layers." + std::to_string(block->block) + ".";
  return renamed(drafts ? "mtp.layers.0." : layer, kBlock, block->rest);
}

// Tensors that a file may hold and that text alone does not need.
bool is_picture(std::string_view name) {
  return name.starts_with("v.") || name.starts_with("mm.");
}

// An embedding and a head for drafting alone: the model's own serve.
bool is_second_embedding(std::string_view name) {
  return name.ends_with(".nextn.embed_tokens.weight") ||
         name.ends_with(".nextn.shared_head_head.weight");
}

// MTP tensors as Ollama bundles them: some norms are shifted and others are not.
bool is_bundled_mtp(std::string_view name) {
  return name.starts_with("mtp.");
}

// ---- shapes and conventions ---------------------------------------------------------------

// conv1d has the shape [channels, 1, width] in safetensors, [channels, width] in most GGUF files.
void bring_to_conv1d(std::vector<std::size_t>& shape) {
  std::erase(shape, 1u);
  if (shape.size() == 2) shape.insert(shape.begin() + 1, 1);
}

Conventions conventions(const Gguf& gguf) {
  const std::string architecture = gguf_architecture(gguf);
  Conventions conventions;
  conventions.qk_rows_are_interleaved = architecture == "llama";
  if (architecture == "qwen35") {
    conventions.norms_are_shifted = true;
    conventions.A_is_exponential = true;
    conventions.value_heads_are_tiled =
        find_bool(gguf, "qwen35.ssm.v_head_reordered").value_or(true);  // Ollama says it
  }
  return conventions;
}

StoredTensor stored(const Gguf& gguf, const GgufTensor& tensor, const std::string& name) {
  const auto dtype = dtype_of(tensor);
  if (!dtype) {
    fail(gguf, "tensor " + in_quotes(tensor.name) + " is stored as " + type_name(tensor) +
                   ", which is not supported; expected F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, "
                   "Q5_1, Q4_K, Q5_K or Q6_K");
  }
  StoredTensor stored{name, *dtype, tensor.shape, tensor.data, gguf.path, gguf.owner};
  if (name.ends_with("conv1d.weight")) bring_to_conv1d(stored.shape);
  return stored;
}

}  // namespace

std::string gguf_architecture(const Gguf& gguf) {
  const auto architecture = find_string(gguf, "general.architecture");
  if (!architecture) fail(gguf, "metadata general.architecture is missing");
  for (const char* known : {"llama", "qwen3", "qwen35"}) {
    if (*architecture == known) return known;
  }
  fail(gguf,
       "general.architecture is " + in_quotes(*architecture) + ", expected llama, qwen3 or qwen35");
}

std::vector<GgufBlock> gguf_blocks(const Gguf& gguf) {
  std::map<std::size_t, GgufBlock> kinds;
  for (const auto& tensor : gguf.tensors) {
    const auto name = block_name(tensor.name);
    if (!name) continue;
    GgufBlock& kind = kinds[name->block];  // full_attention until a tensor tells otherwise
    if (name->rest.starts_with("ssm_")) kind = GgufBlock::linear_attention;
    if (name->rest.starts_with(kNextn)) kind = GgufBlock::mtp;
  }
  std::vector<GgufBlock> blocks;
  for (const auto& [number, kind] : kinds) {
    if (number != blocks.size()) {
      fail(gguf, "there are no tensors of block " + std::to_string(blocks.size()) +
                     ", but some of block " + std::to_string(number));
    }
    if (!blocks.empty() && blocks.back() == GgufBlock::mtp) {
      fail(gguf, "block " + std::to_string(number - 1) +
                     " has nextn tensors (MTP), expected only in the last block");
    }
    blocks.push_back(kind);
  }
  return blocks;
}

Checkpoint open_gguf(const std::string& path) {
  const Gguf gguf = read_gguf(path);
  if (find_integer(gguf, "split.count").value_or(1) > 1) {
    fail(gguf,
         "is one part of a model split over several files; merge them first (llama.cpp: "
         "llama-gguf-split --merge)");
  }
  const auto blocks = gguf_blocks(gguf);
  Checkpoint checkpoint{path, {}, conventions(gguf), {}};
  bool leaves_out_mtp = false;
  for (const auto& tensor : gguf.tensors) {
    if (is_picture(tensor.name)) continue;
    if (is_second_embedding(tensor.name) || is_bundled_mtp(tensor.name)) {
      leaves_out_mtp = true;
      continue;
    }
    const std::string name = checkpoint_name(blocks, tensor.name);
    if (name.empty()) {
      fail(gguf, "tensor " + in_quotes(tensor.name) + " is not known in a model of architecture " +
                     gguf_architecture(gguf));
    }
    if (!checkpoint.tensors.emplace(name, stored(gguf, tensor, name)).second) {
      fail(gguf, "two tensors are " + name + ", one of them " + in_quotes(tensor.name));
    }
  }
  if (leaves_out_mtp) {
    checkpoint.remarks.push_back(
        path + ": the mtp.* tensors, or an embedding and a head for MTP alone, are not used");
  }
  return checkpoint;
}

}  // namespace qwen
