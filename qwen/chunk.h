// The delta rule 64 tokens at a time: the same result, mostly as products of small matrices.
#pragma once

#include <vector>

#include "qwen/ops.h"

namespace qwen {

// Same arguments and result as delta_rule (see Ops::delta_rule), chunk tokens at a time; a last
// chunk of fewer tokens is the same computation on fewer rows. (torch_chunk_gated_delta_rule)
// Equal to the recurrent rule up to rounding, not bit for bit.
namespace plain {
Tensor3 chunk_delta_rule(const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                         const std::vector<int>& key_head, Tensor3& S, int chunk = 64);
}  // namespace plain

// The products by OpenBLAS, heads in threads.
namespace fast {
Tensor3 chunk_delta_rule(const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                         const std::vector<int>& key_head, Tensor3& S, int chunk = 64);
}  // namespace fast

}  // namespace qwen
