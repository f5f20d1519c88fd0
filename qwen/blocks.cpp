#include "qwen/blocks.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <iterator>

namespace qwen {
namespace {

using Byte = std::uint8_t;

// Each function below takes one block to `y`. The drawings give the bytes of a field in its order
// in the block; `half` is a float of two bytes, little endian.
float half(const Byte* bytes) {
  return f16_to_float(static_cast<std::uint16_t>(bytes[0] | bytes[1] << 8));
}

// ---- blocks of 32 -------------------------------------------------------------------------

// Q8_0: 34 bytes, 8.5 bits a number
//   0   d       half
//   2   q[32]   signed bytes
void q8_0(const Byte* block, float* y) {
  const float d = half(block);
  const auto* q = reinterpret_cast<const std::int8_t*>(block + 2);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(q[i]);
}

// Q4_0: 18 bytes, 4.5 bits a number
//   0   d       half
//   2   q[16]   low four bits of byte i: number i; high four bits: number 16 + i; stored as q + 8
void q4_0(const Byte* block, float* y) {
  const float d = half(block);
  const Byte* q = block + 2;
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>((q[i] & 15) - 8);
    y[16 + i] = d * static_cast<float>((q[i] >> 4) - 8);
  }
}

// Q4_1: 20 bytes, 5 bits a number
//   0   d, m    halves
//   4   q[16]   halved bytes as in Q4_0
void q4_1(const Byte* block, float* y) {
  const float d = half(block), m = half(block + 2);
  const Byte* q = block + 4;
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>(q[i] & 15) + m;
    y[16 + i] = d * static_cast<float>(q[i] >> 4) + m;
  }
}

// Bit i of a field of bits that starts at `bits`, as 16 or 0: the fifth bit of a number.
int fifth_bit(const Byte* bits, int i) {
  return (bits[i / 8] >> (i % 8) & 1) << 4;
}

// Q5_0: 22 bytes, 5.5 bits a number
//   0   d       half
//   2   high    32 bits: bit i is the fifth bit of number i
//   6   q[16]   the four low bits, halved bytes as in Q4_0; stored as q + 16
void q5_0(const Byte* block, float* y) {
  const float d = half(block);
  const Byte *high = block + 2, *q = block + 6;
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>(((q[i] & 15) | fifth_bit(high, i)) - 16);
    y[16 + i] = d * static_cast<float>(((q[i] >> 4) | fifth_bit(high, 16 + i)) - 16);
  }
}

// Q5_1: 24 bytes, 6 bits a number
//   0   d, m    halves
//   4   high    32 bits, as in Q5_0
//   8   q[16]   the four low bits
void q5_1(const Byte* block, float* y) {
  const float d = half(block), m = half(block + 2);
  const Byte *high = block + 4, *q = block + 8;
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>((q[i] & 15) | fifth_bit(high, i)) + m;
    y[16 + i] = d * static_cast<float>((q[i] >> 4) | fifth_bit(high, 16 + i)) + m;
  }
}

// ---- blocks of 256 ------------------------------------------------------------------------

// The scale and the minimum of each of the 8 sub-blocks of Q4_K and Q5_K: 16 integers of 6 bits in
// 12 bytes. The first four pairs lie in the low six bits of bytes 0-3 and 4-7; each of the others
// has four bits in bytes 8-11 and its upper two at the top of bytes 0-7.
//
//   byte  0 … 3     ss aaaaaa    scale of sub-block i, above it the top of scale 4 + i
//   byte  4 … 7     mm bbbbbb    minimum of i, above it the top of minimum 4 + i
//   byte  8 … 11    nnnn tttt    the low bits of minimum 4 + i and of scale 4 + i
struct SubBlock {
  int scale, minimum;
};

SubBlock sub_block(const Byte* packed, int i) {
  if (i < 4) return {packed[i] & 63, packed[4 + i] & 63};
  const Byte low = packed[4 + i];
  return {(low & 15) | (packed[i - 4] >> 6) << 4, low >> 4 | (packed[i] >> 6) << 4};
}

// Q4_K: 144 bytes, 4.5 bits a number
//   0    d, dmin   halves: the scales of the sub-blocks' scales and minimums
//   4    packed    12 bytes, see above
//   16   q[128]    32 bytes for every 64 numbers: low four bits the first 32, high four the others
void q4_k(const Byte* block, float* y) {
  const float d = half(block), dmin = half(block + 2);
  for (int s = 0; s < 8; ++s) {
    const auto [scale, minimum] = sub_block(block + 4, s);
    const float ds = d * static_cast<float>(scale), m = dmin * static_cast<float>(minimum);
    const Byte* q = block + 16 + 32 * (s / 2);
    const int shift = s % 2 * 4;
    for (int i = 0; i < 32; ++i) y[32 * s + i] = ds * static_cast<float>(q[i] >> shift & 15) - m;
  }
}

// Q5_K: 176 bytes, 5.5 bits a number
//   0    d, dmin   halves
//   4    packed    12 bytes, as in Q4_K
//   16   high[32]  bit s of byte i: the fifth bit of number i of sub-block s
//   48   q[128]    the four low bits, as in Q4_K
void q5_k(const Byte* block, float* y) {
  const float d = half(block), dmin = half(block + 2);
  const Byte* high = block + 16;
  for (int s = 0; s < 8; ++s) {
    const auto [scale, minimum] = sub_block(block + 4, s);
    const float ds = d * static_cast<float>(scale), m = dmin * static_cast<float>(minimum);
    const Byte* q = block + 48 + 32 * (s / 2);
    const int shift = s % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const int value = (q[i] >> shift & 15) | (high[i] >> s & 1) << 4;
      y[32 * s + i] = ds * static_cast<float>(value) - m;
    }
  }
}

// Q6_K: 210 bytes, 6.5625 bits a number. Sub-blocks of 16; the two halves of a block are alike:
// 128 numbers in four runs of 32, run r of which has
//   its four low bits    in 32 bytes of `low`, the first 32 for r = 0 and 2, the others for 1 and
//   3;
//                        low half of a byte for r = 0 and 1, high half for 2 and 3
//   its two high bits    in bits 2r, 2r + 1 of the 32 bytes of `high`
//   0     low[128]    64 bytes for each half of the block
//   128   high[64]    32 bytes for each half
//   192   scale[16]   signed bytes, one for each sub-block
//   208   d           half; numbers are stored as q + 32
void q6_k(const Byte* block, float* y) {
  const float d = half(block + 208);
  const auto* scale = reinterpret_cast<const std::int8_t*>(block + 192);
  for (int run = 0; run < 8; ++run) {
    const int r = run % 4;
    const Byte* low = block + 64 * (run / 4) + 32 * (r % 2);
    const Byte* high = block + 128 + 32 * (run / 4);
    for (int i = 0; i < 32; ++i) {
      const int value = (low[i] >> 4 * (r / 2) & 15) | (high[i] >> 2 * r & 3) << 4;
      const float ds = d * static_cast<float>(scale[2 * run + i / 16]);
      y[32 * run + i] = ds * static_cast<float>(value - 32);
    }
  }
}

// ---- rows of blocks -----------------------------------------------------------------------

struct BlockFormat {
  DType dtype;
  std::size_t values, bytes;  // of a block
  void (*convert)(const Byte* block, float* y);
};

constexpr BlockFormat kFormats[] = {
    {DType::Q8_0, 32, 34, q8_0},   {DType::Q4_0, 32, 18, q4_0},   {DType::Q4_1, 32, 20, q4_1},
    {DType::Q5_0, 32, 22, q5_0},   {DType::Q5_1, 32, 24, q5_1},   {DType::Q4_K, 256, 144, q4_k},
    {DType::Q5_K, 256, 176, q5_k}, {DType::Q6_K, 256, 210, q6_k},
};

}  // namespace

void block_to_float(DType dtype, const std::byte* source, std::size_t count, float* out) {
  const auto* format = std::find_if(std::begin(kFormats), std::end(kFormats),
                                    [&](const BlockFormat& f) { return f.dtype == dtype; });
  assert(format != std::end(kFormats) && count % format->values == 0);
  const auto* block = reinterpret_cast<const Byte*>(source);
  for (std::size_t i = 0; i < count; i += format->values, block += format->bytes) {
    format->convert(block, out + i);
  }
}

}  // namespace qwen
