// The chunk of chunk.cpp as products of matrices, which OpenBLAS computes. X' is X with row i times
// exp(G[i]), what is left of the state at token i:
//
//   [R; O] = [K'; Q'] S              what the old state holds under each key and query
//   [A; W] = [K; Q] K^T              entries times exp(L), on and below the diagonal
//   (1 + beta A) D = beta (V - R)    a triangle of ones on the diagonal: forward substitution
//   O = O + W D
//   S = exp(G[C-1]) S + (exp(L[C-1]) K)^T D
#include <cblas.h>

#include <algorithm>
#include <vector>

#include "qwen/chunk.h"
#include "qwen/parallel.h"
#include "qwen/simd.h"

namespace qwen {

void check_chunk_delta_rule(const Qkv& qkv, const Tensor2& g, const Tensor2& beta, const Tensor3& S,
                            int chunk);  // chunk.cpp

namespace fast {
namespace {

using simd::Vec;

// y [n] = a x [n]
void scale(float* y, float a, const float* x, int n) {
  simd::map(
      n, y, [=](Vec v) { return v * a; }, x);
}

// One head's part of a chunk of C tokens, and the matrices above.
struct Chunk {
  Chunk(int C, int Dk, int Dv)
      : KQ(uninit(2 * C, Dk)),
        decayed(uninit(2 * C, Dk)),
        RO(uninit(2 * C, Dv)),
        AW(uninit(2 * C, C)),
        left(uninit(C, C)),
        left_of_S(uninit(C)),
        D(uninit(C, Dv)) {}

  Tensor2 KQ;         // [2 C, Dk]
  Tensor2 decayed;    // [2 C, Dk]
  Tensor2 RO;         // [2 C, Dv]
  Tensor2 AW;         // [2 C, C]
  Tensor2 left;       // [C, C]: exp(L) on and below the diagonal
  Tensor1 left_of_S;  // [C]: exp(G)
  Tensor2 D;          // [C, Dv]
};

// The logarithms of row i are those of row i - 1, plus g[i]: no sum is ever a difference.
void decays(const Tensor2& g, int h, int first, int C, Chunk& c) {
  float since_start = 0;
  std::vector<float> L(C);
  for (int i = 0; i < C; ++i) {
    const float g_i = g(first + i, h);
    c.left_of_S(i) = simd::exp(since_start += g_i);
    simd::map(
        i, L.data(), [=](Vec l) { return l + g_i; }, L.data());
    L[i] = 0;
    simd::map(
        i + 1, row(c.left, i), [](Vec l) { return simd::exp(l); }, L.data());
  }
}

// K, Q and K', Q'.
void gather(const Qkv& qkv, int key_head, int first, int C, Chunk& c) {
  const int Dk = dim(qkv.k, 2);
  for (int i = 0; i < C; ++i) {
    const float* k = row(qkv.k, first + i) + Dk * key_head;
    const float* q = row(qkv.q, first + i) + Dk * key_head;
    std::copy_n(k, Dk, row(c.KQ, i));
    std::copy_n(q, Dk, row(c.KQ, C + i));
    scale(row(c.decayed, i), c.left_of_S(i), k, Dk);
    scale(row(c.decayed, C + i), c.left_of_S(i), q, Dk);
  }
}

// The system and its right side: beta A below the diagonal, beta (V - R) in D; W, with zeros above
// the diagonal.
void weigh(const Qkv& qkv, const Tensor2& beta, int h, int first, int C, Chunk& c) {
  const int Dv = dim(qkv.v, 2);
  for (int i = 0; i < C; ++i) {
    const float b = beta(first + i, h);
    float* A = row(c.AW, i);
    float* W = row(c.AW, C + i);
    const auto times = [](Vec x, Vec left) { return x * left; };
    simd::map(
        i, A, [=](Vec a, Vec left) { return a * left * b; }, A, row(c.left, i));
    simd::map(i + 1, W, times, W, row(c.left, i));
    std::fill(W + i + 1, W + C, 0.0f);
    const auto difference = [=](Vec v, Vec r) { return (v - r) * b; };
    simd::map(Dv, row(c.D, i), difference, row(qkv.v, first + i) + Dv * h, row(c.RO, i));
  }
}

// D [C, Dv] becomes the solution of (1 + A) X = D, A as it stands below the diagonal.
void substitute(const Tensor2& A, Tensor2& D, int C) {
  for (int i = 1; i < C; ++i) {
    for (int j = 0; j < i; ++j) {
      const Vec a = simd::broadcast(-A(i, j));
      const auto without = [=](Vec d_i, Vec d_j) { return simd::fma(a, d_j, d_i); };
      simd::map(dim(D, 1), row(D, i), without, row(D, i), row(D, j));
    }
  }
}

// C = A B + beta C, all row-major; lda … are the distances between rows.
void multiply(CBLAS_TRANSPOSE transA, CBLAS_TRANSPOSE transB, int M, int N, int K, const float* A,
              int lda, const float* B, int ldb, float beta, float* C, int ldc) {
  cblas_sgemm(CblasRowMajor, transA, transB, M, N, K, 1, A, lda, B, ldb, beta, C, ldc);
}

void run(const Qkv& qkv, const Tensor2& g, const Tensor2& beta, int h, int key_head, int first,
         int C, Chunk& c, float* S, Tensor3& o) {
  const int Dk = dim(qkv.k, 2), Dv = dim(qkv.v, 2), ld = dim(c.AW, 1);
  decays(g, h, first, C, c);
  gather(qkv, key_head, first, C, c);
  multiply(CblasNoTrans, CblasNoTrans, 2 * C, Dv, Dk, c.decayed.data(), Dk, S, Dv, 0, c.RO.data(),
           Dv);
  multiply(CblasNoTrans, CblasTrans, 2 * C, C, Dk, c.KQ.data(), Dk, c.KQ.data(), Dk, 0, c.AW.data(),
           ld);
  weigh(qkv, beta, h, first, C, c);
  substitute(c.AW, c.D, C);
  float* O = row(c.RO, C);
  multiply(CblasNoTrans, CblasNoTrans, C, Dv, C, row(c.AW, C), ld, c.D.data(), Dv, 1, O, Dv);
  for (int i = 0; i < C; ++i) std::copy_n(O + Dv * i, Dv, row(o, first + i) + Dv * h);

  for (int i = 0; i < C; ++i) scale(row(c.KQ, i), c.left(C - 1, i), row(c.KQ, i), Dk);
  multiply(CblasTrans, CblasNoTrans, Dk, Dv, C, c.KQ.data(), Dk, c.D.data(), Dv, c.left_of_S(C - 1),
           S, Dv);
}

}  // namespace

Tensor3 chunk_delta_rule(const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                         const std::vector<int>& key_head, Tensor3& S, int chunk) {
  check_chunk_delta_rule(qkv, g, beta, S, chunk);
  openblas_set_num_threads(1);  // the heads are what is shared out
  const int T = dim(qkv.v, 0), Hv = dim(qkv.v, 1), Dv = dim(qkv.v, 2), Dk = dim(qkv.k, 2);
  Tensor3 o = uninit(T, Hv, Dv);
  parallel_for(Hv, 1, [&](int begin, int end) {
    Chunk c(std::min(chunk, T), Dk, Dv);
    for (int h = begin; h < end; ++h) {
      for (int first = 0; first < T; first += chunk) {
        run(qkv, g, beta, h, key_head[h], first, std::min(chunk, T - first), c, row(S, h), o);
      }
    }
  });
  return o;
}

}  // namespace fast
}  // namespace qwen
