// GGUF files as checkpoints: llama.cpp's names and habits, brought to those of safetensors files.
//
// One table of names serves the three architectures ("llama", "qwen3", "qwen35"). Files that
// programs write differ in their counters, so the tensors decide: a block with ssm_* tensors is
// linear attention, one with nextn.* tensors drafts (MTP, chapter 14), any other is full attention.
//
// What stands differently in the files, and is flagged in Checkpoint::conventions. Rows and heads
// count from 0; the file's own order is on the left.
//
//   qk_rows_are_interleaved (llama)   Rows of self_attn.q_proj and k_proj: row h D + 2 i + s of the
//       file is row h D + s D/2 + i of the model (head h of size D, s = 0 or 1): the two numbers
//       that RoPE turns together stand side by side. v_proj and o_proj are as they are.
//   norms_are_shifted (qwen35)        1 + w is stored for every norm but linear_attn.norm: the two
//       of each layer, q_norm, k_norm, the final one, and all of mtp.*.
//   A_is_exponential (qwen35)         linear_attn.A_log holds -exp(A_log).
//   value_heads_are_tiled (qwen35)    Value head j Hk + k of the file is head k (Hv / Hk) + j of
//   the
//       model, both served by key head k, in everything that is laid out by value heads: the rows
//       of in_proj_z, in_proj_a and in_proj_b, the v rows (the last Hv Dv) of in_proj_qkv and
//       channels of conv1d, A_log, dt_bias, and the columns of out_proj. linear_attn.norm, the q
//       and k rows and channels are as they are. With Hv = Hk both orders are the same.
#pragma once

#include <string>
#include <vector>

#include "qwen/checkpoint.h"
#include "qwen/gguf_file.h"

namespace qwen {

// Maps a file and lists its tensors under the names of a text-only safetensors checkpoint; conv1d
// has the shape [channels, 1, width] there, however it is stored. Tensors of a picture encoder are
// left out. std::runtime_error, one line, for a file that is damaged, of another architecture, or
// holds a tensor or a format we do not know.
Checkpoint open_gguf(const std::string& path);

// general.architecture: "llama", "qwen3" or "qwen35"; std::runtime_error for another.
std::string gguf_architecture(const Gguf& gguf);

// What each block (blk.0, blk.1, …) is. Drafting blocks come last.
enum class GgufBlock { full_attention, linear_attention, mtp };
std::vector<GgufBlock> gguf_blocks(const Gguf& gguf);

}  // namespace qwen
