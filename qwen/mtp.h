// Multi-token prediction: a small layer behind the model that guesses one token further.
//
//   token n + 1 ─ embed ─ pre_fc_norm_embedding ─┐
//                                                fc ─ layer ─ norm ─ the model's head ─ token n + 2
//   h_n ───────────────── pre_fc_norm_hidden ────┘    (own KV)
//
// h_n is the model's last row at position n, after the final norm.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "qwen/checkpoint.h"
#include "qwen/model.h"

namespace qwen {

struct Mtp {
  Tensor1 pre_fc_norm_embedding, pre_fc_norm_hidden;  // [hidden_size]
  Weight fc;     // [hidden_size, 2 hidden_size]: the first half meets the embedding
  Layer layer;   // full attention
  Tensor1 norm;  // [hidden_size]
};

// The mtp.* tensors of a checkpoint (in GGUF: nextn.* and the rest of the last block), as
// load_model does it. std::runtime_error, one line, where there are none, or one is missing, has
// another shape, or has no place.
Mtp load_mtp(const Config& config, const Checkpoint& checkpoint,
             std::optional<DType> dtype = std::nullopt);

// hidden [T, hidden_size]: the model's rows of T tokens that follow each other, after the final
// norm; next_ids [T]: the token after each -> [T, hidden_size], from which the head makes the
// logits of the token two further on than each. `memory` holds the KV of the rows before and is
// moved on.
//
// To guess further, the result takes the place of `hidden`, and the guess that of the token.
Tensor2 mtp_forward(const Model& model, const Ops& ops, const Mtp& mtp, const Tensor2& hidden,
                    std::span<const int> next_ids, LayerState& memory);

// The state of an MTP layer before its first row.
LayerState empty_mtp_memory();

}  // namespace qwen
