// One vector of floats, as wide as the machine's registers, and the few operations the fast
// kernels need. Everything generic is the compilers' own vector type; what differs between
// instruction sets stands in one section each.
//
// Every sum whose terms lie along a vector runs in this order: lane l adds elements l, l + kLanes,
// l + 2 kLanes, … with one fused multiply-add each, and `sum` adds the lanes by halves at the end.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace qwen::simd {

// Floats in a vector, and vectors that the machine has registers for.
#if defined(__AVX512F__)
inline constexpr int kLanes = 16, kRegisters = 32;
inline constexpr const char* kName = "AVX-512";
#elif defined(__AVX2__) && defined(__FMA__)
inline constexpr int kLanes = 8, kRegisters = 16;
inline constexpr const char* kName = "AVX2";
#elif defined(__ARM_NEON)
inline constexpr int kLanes = 4, kRegisters = 32;
inline constexpr const char* kName = "NEON";
#else
inline constexpr int kLanes = 4, kRegisters = 16;
inline constexpr const char* kName = "portable";
#endif

typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef std::int32_t VecInt __attribute__((vector_size(kLanes * 4)));
typedef std::uint32_t VecBits __attribute__((vector_size(kLanes * 4)));

inline Vec broadcast(float x) {
  return x - Vec{};
}

inline Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, Vec v) {
  std::memcpy(p, &v, sizeof v);
}

// Stores to an aligned place and leaves no copy in the caches, where the machine can.
inline void store_past_caches(float* p, Vec v) {
#if defined(__AVX512F__)
  _mm512_stream_ps(p, (__m512)v);
#elif defined(__AVX2__) && defined(__FMA__)
  _mm256_stream_ps(p, (__m256)v);
#else
  store(p, v);
#endif
}

// Keeps a loaded vector in its register: gcc would rather fold the load into each multiply-add that
// uses it, and read the vector once for each of them.
inline void pin(Vec& v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__SSE__)
  asm("" : "+x"(v));
#elif defined(__ARM_NEON)
  asm("" : "+w"(v));
#else
  (void)v;
#endif
}

// a * b + c with one rounding, where the machine has the instruction.
inline Vec fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__) && defined(__FMA__)
  return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__ARM_NEON)
  return (Vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}

// The first `count` lanes from memory, 0 <= count < kLanes, the others 0; nothing past them is
// read.
inline Vec load_first(const float* p, int count) {
#if defined(__AVX512F__)
  return (Vec)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p);
#else
  Vec v{};
  std::memcpy(&v, p, static_cast<std::size_t>(count) * sizeof(float));
  return v;
#endif
}
inline void store_first(float* p, Vec v, int count) {
  std::memcpy(p, &v, static_cast<std::size_t>(count) * sizeof(float));
}

// The same where `count` may be kLanes or more: all lanes then.
inline Vec load_up_to(const float* p, int count) {
  return count >= kLanes ? load(p) : load_first(p, count);
}
inline void store_up_to(float* p, Vec v, int count) {
  count >= kLanes ? store(p, v) : store_first(p, v, count);
}

// v with its lanes turned by `Shift` places.
template <int Shift, int... Lane>
inline Vec turn(Vec v, std::integer_sequence<int, Lane...>) {
  return __builtin_shufflevector(v, v, (Lane + Shift) % kLanes...);
}

// Sum (largest) of the lanes: the upper half meets the lower, until one lane is left.
inline float sum(Vec v) {
  constexpr std::make_integer_sequence<int, kLanes> lanes;
  if constexpr (kLanes >= 16) v += turn<8>(v, lanes);
  if constexpr (kLanes >= 8) v += turn<4>(v, lanes);
  v += turn<2>(v, lanes);
  v += turn<1>(v, lanes);
  return v[0];
}
// One step of `sum` for two vectors at once: in every group of 2 * Half lanes the upper half is
// added to the lower; a's sums come to the lower half, b's to the upper. Half of the lanes are
// where they are needed: a blend, cheaper than a second shuffle.
template <int Half, int... Lane>
inline Vec add_halves(Vec a, Vec b, std::integer_sequence<int, Lane...>) {
  const Vec in_place =
      __builtin_shufflevector(a, b, (Lane / Half % 2 == 0 ? Lane : kLanes + Lane)...);
  const Vec crossed =
      __builtin_shufflevector(a, b, (Lane / Half % 2 == 0 ? Lane + Half : kLanes + Lane - Half)...);
  return in_place + crossed;
}

// Lane i is sum(v[i]), bit for bit, at a third of the cost; v [kLanes] is used up.
template <int Half = kLanes / 2>
inline Vec sum_each(Vec* v) {
  constexpr std::make_integer_sequence<int, kLanes> lanes;
  for (int i = 0; i < Half; ++i) v[i] = add_halves<Half>(v[i], v[i + Half], lanes);
  if constexpr (Half > 1) return sum_each<Half / 2>(v);
  return v[0];
}

// f(integral_constant R) with R = rows, or Most where there are more: a kernel for each number of
// rows that fits into registers.
template <int Most, class F>
void with_rows(int rows, F f) {
  if (rows >= Most) {
    f(std::integral_constant<int, Most>{});
  } else if constexpr (Most > 1) {
    with_rows<Most - 1>(rows, f);
  }
}

inline Vec larger(Vec a, Vec b) {
  return a > b ? a : b;
}
inline float max(Vec v) {
  constexpr std::make_integer_sequence<int, kLanes> lanes;
  if constexpr (kLanes >= 16) v = larger(v, turn<8>(v, lanes));
  if constexpr (kLanes >= 8) v = larger(v, turn<4>(v, lanes));
  v = larger(v, turn<2>(v, lanes));
  return larger(v, turn<1>(v, lanes))[0];
}

// e^x: x = n ln 2 + r with |r| <= ln 2 / 2, so e^x = 2^n e^r. The Taylor series of e^r up to r^7 is
// within 5e-9; the result is within 2 units of the last place. Below -87.3 (where floats become
// subnormal) the result is 0, above 88.7 infinity; NaN stays NaN.
inline Vec exp(Vec x) {
  const Vec lowest = broadcast(-87.3f), highest = broadcast(88.7f);
  Vec inside = x < lowest ? lowest : x;
  inside = inside > highest ? highest : inside;
  // Adding and subtracting 1.5 * 2^23 rounds to an integer, which then stands in the low bits.
  const Vec shift = broadcast(12582912.0f);
  const Vec shifted = fma(inside, broadcast(1.44269504f), shift);  // log2(e)
  const Vec n = shifted - shift;
  Vec r = fma(n, broadcast(-0.693145752f), inside);  // ln 2 in two parts: the upper one is exact
  r = fma(n, broadcast(-1.42860677e-6f), r);
  Vec e = broadcast(1.0f / 5040);
  e = fma(e, r, broadcast(1.0f / 720));
  e = fma(e, r, broadcast(1.0f / 120));
  e = fma(e, r, broadcast(1.0f / 24));
  e = fma(e, r, broadcast(1.0f / 6));
  e = fma(e, r, broadcast(0.5f));
  e = fma(e, r, broadcast(1.0f));
  e = fma(e, r, broadcast(1.0f));
  // n joins the exponent of e, whose result is neither too large nor subnormal for it: e < 1 where
  // n = 128, e > 1 where n = -126. Unsigned, since the bits of a NaN are beyond any such bound.
  e = (Vec)((VecBits)e + ((VecBits)shifted << 23));
  e = x < lowest ? Vec{} : e;
  e = x > highest ? broadcast(std::numeric_limits<float>::infinity()) : e;
  return x != x ? x : e;
}

inline Vec sigmoid(Vec x) {
  return 1.0f / (1.0f + exp(-x));
}
inline Vec silu(Vec x) {
  return x / (1.0f + exp(-x));
}

// The same functions for one number: lane 0 of the vector's, so that a tail has the same bits.
inline float exp(float x) {
  return exp(broadcast(x))[0];
}
inline float sigmoid(float x) {
  return sigmoid(broadcast(x))[0];
}

// y[i] = f(x[i]) for a row of n floats; the last, incomplete vector goes through the same f.
template <class F, class... In>
inline void map(int n, float* y, F f, const In*... x) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, f(load(x + i)...));
  if (i < n) store_first(y + i, f(load_first(x + i, n - i)...), n - i);
}

// x · y over n floats.
inline float dot(const float* x, const float* y, int n) {
  Vec total{};
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) total = fma(load(x + i), load(y + i), total);
  if (i < n) total = fma(load_first(x + i, n - i), load_first(y + i, n - i), total);
  return sum(total);
}

}  // namespace qwen::simd
