// Rotary position embedding: the angle between a query and a key tells how far apart they stand.
#pragma once

#include "qwen/config.h"
#include "qwen/tensor.h"

namespace qwen {

// The rotations of T tokens at positions position … position + T - 1.
struct Rotation {
  Tensor2 cos, sin;  // [T, rotary_dim / 2]
};

// Angle of pair i at position p: p * rope_theta^(-2 i / rotary_dim), always from the absolute
// position. (Qwen3_5TextRotaryEmbedding; for text its three position axes are equal, so that
// interleaved mrope is this.)
Rotation rotation(const Config& config, int position, int T);

namespace plain {
// x [T, heads, D]; cos, sin [T, R / 2], R <= D. In place: dimensions i and i + R / 2 are one pair,
// turned by the token's i-th angle; dimensions from R on stay as they are.
void rope(Tensor3& x, const Tensor2& cos, const Tensor2& sin);
}  // namespace plain

namespace fast {
void rope(Tensor3& x, const Tensor2& cos, const Tensor2& sin);
}  // namespace fast

}  // namespace qwen
