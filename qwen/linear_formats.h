// The formats of linear_fast.cpp: how a row of W and a row of x become vectors, and how two of
// those are multiplied.
//
// A step is a vector's bytes of a row of W, kStep elements along K. They become kParts vectors:
// `weight` makes those of W, `input` those of x, which is float32. One instruction set per section,
// chosen at compile time; the same bits from all that a machine has a choice of (but for subnormal
// numbers, which the bf16 instructions take for zero).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "qwen/dtype.h"
#include "qwen/simd.h"

namespace qwen::fast {

using simd::kLanes;
using simd::Vec;

constexpr int kStepBytes = sizeof(Vec);  // with AVX-512 a cache line

struct F32 {
  static constexpr int kStep = kLanes, kParts = 1;
  static Vec weight(const std::byte* w, int) {
    return simd::load(reinterpret_cast<const float*>(w));
  }
  static Vec input(const float* x, int) { return simd::load(x); }
  static Vec multiply_add(Vec x, Vec w, Vec sum) { return simd::fma(x, w, sum); }
};

struct F16 : F32 {
  static constexpr int kStep = 2 * kLanes, kParts = 2;
  static Vec input(const float* x, int part) { return simd::load(x + part * kLanes); }
  static Vec weight(const std::byte* w, int part) {
    w += part * 2 * kLanes;
#if defined(__AVX512F__)
    __m256i bits;
    std::memcpy(&bits, w, sizeof bits);
    return (Vec)_mm512_maskz_cvtph_ps(0xFFFF, bits);  // all lanes; gcc 12 warns of the plain form
#elif defined(__F16C__) && defined(__AVX2__)
    __m128i bits;
    std::memcpy(&bits, w, sizeof bits);
    return (Vec)_mm256_cvtph_ps(bits);
#elif defined(__ARM_NEON)
    float16x4_t bits;
    std::memcpy(&bits, w, sizeof bits);
    return (Vec)vcvt_f32_f16(bits);
#else
    Vec v;
    for (int i = 0; i < kLanes; ++i) {
      std::uint16_t bits;
      std::memcpy(&bits, w + 2 * i, 2);
      v[i] = f16_to_float(bits);
    }
    return v;
#endif
  }
};

// Pairs of bf16: lane l holds the elements 2l and 2l + 1. Their two products go into one float sum,
// the odd element's first: that is what the hardware's dot product does.
struct Bf16Pairs {
  static constexpr int kStep = 2 * kLanes, kParts = 1;
  static Vec weight(const std::byte* w, int) { return F32::weight(w, 0); }
  static Vec input(const float* x, int) {
    const auto even = (Bits)rounded<0>(x), odd = (Bits)rounded<1>(x);
    return (Vec)(odd | even >> 16);
  }

  // The even (Odd = 0) or odd (1) elements of a step of x as floats, rounded as float_to_bf16 does.
  template <int Odd>
  static Vec rounded(const float* x) {
    const Vec v = every_second<Odd>(simd::load(x), simd::load(x + kLanes),
                                    std::make_integer_sequence<int, kLanes>());
    const Bits bits = (Bits)v, nearest = bits + 0x7FFF + (bits >> 16 & 1);
    return (Vec)((v == v ? nearest : bits | 0x400000) & 0xFFFF0000);
  }

 private:
  typedef std::uint32_t Bits __attribute__((vector_size(sizeof(Vec))));
  template <int First, int... Lane>
  static Vec every_second(Vec a, Vec b, std::integer_sequence<int, Lane...>) {
    return __builtin_shufflevector(a, b, (2 * Lane + First)...);
  }
};

// Both elements of a pair widened to floats, an instruction each: the same products, the same
// order.
struct Bf16Widened : Bf16Pairs {
  static constexpr int kParts = 2;
  static Vec weight(const std::byte* w, int part) {
    Vec pairs = Bf16Pairs::weight(w, 0);
    simd::pin(pairs);  // gcc would load them again for the second part
    const auto bits = (simd::VecInt)pairs;
    return (Vec)(part == 0 ? bits & (std::int32_t)0xFFFF0000 : bits << 16);
  }
  static Vec input(const float* x, int part) { return part == 0 ? rounded<1>(x) : rounded<0>(x); }
  static Vec multiply_add(Vec x, Vec w, Vec sum) { return simd::fma(x, w, sum); }
};

// AMD's dot product does twice the work of a multiply-add in the same time. Intel's (they also know
// AVX-512 FP16) takes four times as long: there, and where there is none, pairs are widened.
#if defined(__AVX512BF16__) && !defined(__AVX512FP16__)
inline constexpr const char* kLinearKernel = "AVX-512, bf16 dot product";
struct BF16 : Bf16Pairs {
  static Vec multiply_add(Vec x, Vec w, Vec sum) {
    return (Vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)w);
  }
};
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
inline constexpr const char* kLinearKernel = "NEON, bf16 multiply-add";
struct BF16 : Bf16Pairs {
  static Vec multiply_add(Vec x, Vec w, Vec sum) {
    const bfloat16x8_t x_pairs = (bfloat16x8_t)x, w_pairs = (bfloat16x8_t)w;
    const float32x4_t odd = vbfmlaltq_f32((float32x4_t)sum, x_pairs, w_pairs);
    return (Vec)vbfmlalbq_f32(odd, x_pairs, w_pairs);
  }
};
#else
inline constexpr const char* kLinearKernel = simd::kName;
using BF16 = Bf16Widened;
#endif

}  // namespace qwen::fast
