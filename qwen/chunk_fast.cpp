// The chunk of chunk.cpp as products of matrices, which OpenBLAS computes:
//
//   [R; O] = [K; Q] S                what the old state holds under each key and query; rows times
//                                    exp(G), what is left of it at each token
//   [A; W] = [K; Q] K^T              entries times exp(L), on and below the diagonal
//   (1 + beta A) D = beta (V - R)    a triangle of ones on the diagonal: forward substitution
//   O = O + W D
//   S = exp(G[C-1]) S + (exp(L[C-1]) K)^T D
#include <cblas.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "qwen/chunk.h"
#include "qwen/parallel.h"
#include "qwen/simd.h"

namespace qwen {

void check_chunk_delta_rule(const Qkv& qkv, const Tensor2& g, const Tensor2& beta, const Tensor3& S,
                            int chunk);  // chunk.cpp

namespace fast {
namespace {

using simd::kLanes;
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
        K_T(uninit(Dk, C)),
        RO(uninit(2 * C, Dv)),
        AW(uninit(2 * C, C)),
        left(uninit(C, C)),
        left_of_S(uninit(C)),
        D(uninit(C, Dv)) {}

  Tensor2 KQ;         // [2 C, Dk]
  Tensor2 K_T;        // [Dk, C]
  Tensor2 RO;         // [2 C, Dv]
  Tensor2 AW;         // [2 C, C]
  Tensor2 left;       // [C, C]: exp(L) on and below the diagonal
  Tensor1 left_of_S;  // [C]: exp(G)
  Tensor2 D;          // [C, Dv]
};

// The logarithms of row i are those of row i - 1, plus g[i]: sums, never G[i] - G[j], which would
// cancel.
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

// K, Q and K^T. (Where they come from, rows lie kilobytes apart and crowd into a few sets of the
// cache.)
void gather(const Qkv& qkv, int key_head, int first, int C, Chunk& c) {
  const int Dk = dim(qkv.k, 2);
  for (int i = 0; i < C; ++i) {
    std::copy_n(row(qkv.k, first + i) + Dk * key_head, Dk, row(c.KQ, i));
    std::copy_n(row(qkv.q, first + i) + Dk * key_head, Dk, row(c.KQ, C + i));
  }
  cblas_somatcopy(CblasRowMajor, CblasTrans, C, Dk, 1, c.KQ.data(), Dk, c.K_T.data(),
                  dim(c.K_T, 1));
}

// The system and its right side: beta A below the diagonal, beta (V - R) in D; W, with zeros above
// the diagonal; and what the old state gives to o.
void weigh(const Qkv& qkv, const Tensor2& beta, int h, int first, int C, Chunk& c, Tensor3& o) {
  const int Dv = dim(qkv.v, 2);
  for (int i = 0; i < C; ++i) {
    const float b = beta(first + i, h), left_of_S = c.left_of_S(i);
    float* A = row(c.AW, i);
    float* W = row(c.AW, C + i);
    const auto times = [](Vec x, Vec left) { return x * left; };
    simd::map(
        i, A, [=](Vec a, Vec left) { return a * left * b; }, A, row(c.left, i));
    simd::map(i + 1, W, times, W, row(c.left, i));
    std::fill(W + i + 1, W + C, 0.0f);
    const auto difference = [=](Vec v, Vec r) { return (v - left_of_S * r) * b; };
    simd::map(Dv, row(c.D, i), difference, row(qkv.v, first + i) + Dv * h, row(c.RO, i));
    scale(row(o, first + i) + Dv * h, left_of_S, row(c.RO, C + i), Dv);
  }
}

// D [C, Dv] becomes the solution of (1 + A) X = D, A as it stands below the diagonal: here columns
// c … of it, a row of them in registers.
template <int Vectors>
void substitute_columns(const Tensor2& A, Tensor2& D, int C, int c) {
  const int n = dim(D, 1) - c;
  for (int i = 1; i < C; ++i) {
    Vec d[Vectors];
    for (int v = 0; v < Vectors; ++v) d[v] = simd::load_up_to(row(D, i) + c + v * kLanes, n);
    for (int j = 0; j < i; ++j) {
      const Vec a = simd::broadcast(-A(i, j));
      for (int v = 0; v < Vectors; ++v) {
        d[v] = simd::fma(a, simd::load_up_to(row(D, j) + c + v * kLanes, n), d[v]);
      }
    }
    for (int v = 0; v < Vectors; ++v) simd::store_up_to(row(D, i) + c + v * kLanes, d[v], n);
  }
}
void substitute(const Tensor2& A, Tensor2& D, int C) {
  constexpr int kVectors = 8;  // chains that hide the latency of a multiply-add
  const int Dv = dim(D, 1);
  int c = 0;
  for (; c + kVectors * kLanes <= Dv; c += kVectors * kLanes) {
    substitute_columns<kVectors>(A, D, C, c);
  }
  for (; c < Dv; c += kLanes) substitute_columns<1>(A, D, C, c);
}

// Up to this many multiply-adds OpenBLAS, where it has kernels for AVX-512, reads its matrices
// where they lie. Above it packs them first, which for a chunk takes a third of the time. So a
// product is cut into such parts, unless they would be only a few rows high.
constexpr std::int64_t kUnpacked = 100 * 100 * 100, kFewRows = 16;

// C [M, N] = A [M, K] B [K, N] + beta C, all row-major; lda … are the distances between rows.
void multiply(int M, int N, int K, const float* A, int lda, const float* B, int ldb, float beta,
              float* C, int ldc) {
  const std::int64_t most = kUnpacked / (std::int64_t{N} * K);  // rows
  const int parts = most < kFewRows ? 1 : static_cast<int>((M + most - 1) / most);
  const int rows = (M + parts - 1) / parts;
  for (int m = 0; m < M; m += rows) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, std::min(rows, M - m), N, K, 1,
                A + m * lda, lda, B, ldb, beta, C + m * ldc, ldc);
  }
}

void run(const Qkv& qkv, const Tensor2& g, const Tensor2& beta, int h, int key_head, int first,
         int C, Chunk& c, float* S, Tensor3& o) {
  const int Hv = dim(qkv.v, 1), Dk = dim(qkv.k, 2), Dv = dim(qkv.v, 2), ld = dim(c.AW, 1);
  const float *KQ = c.KQ.data(), *K_T = c.K_T.data(), *D = c.D.data(), *W = row(c.AW, C);
  decays(g, h, first, C, c);
  gather(qkv, key_head, first, C, c);
  multiply(2 * C, Dv, Dk, KQ, Dk, S, Dv, 0, c.RO.data(), Dv);
  multiply(2 * C, C, Dk, KQ, Dk, K_T, ld, 0, c.AW.data(), ld);
  weigh(qkv, beta, h, first, C, c, o);
  substitute(c.AW, c.D, C);
  multiply(C, Dv, C, W, ld, D, Dv, 1, row(o, first) + Dv * h, Hv * Dv);

  const auto times = [](Vec k, Vec left) { return k * left; };
  for (int i = 0; i < Dk; ++i) {
    simd::map(C, row(c.K_T, i), times, row(c.K_T, i), row(c.left, C - 1));
  }
  multiply(Dk, Dv, C, K_T, ld, D, Dv, c.left_of_S(C - 1), S, Dv);
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
