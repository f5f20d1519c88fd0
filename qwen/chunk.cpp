// The delta rule over a chunk of C tokens, from the state S before it:
//
//   L[i, j] = g[j+1] + … + g[i]    how much of what token j wrote is left at token i, as a
//   logarithm G[i]    = g[0] + … + g[i]      the same for what was there before the chunk
//
//   d[i] = beta[i] (v[i] - exp(G[i]) S^T k[i] - sum over j < i of exp(L[i, j]) (k[i] · k[j]) d[j])
//   o[i] = exp(G[i]) S^T q[i]       + sum over j <= i of exp(L[i, j]) (q[i] · k[j]) d[j]
//   S    = exp(G[C-1]) S            + sum over j of exp(L[C-1, j]) k[j] d[j]^T
//
// Only the first line has an order in it: d[i] needs the d before it (forward substitution).
// Everything else is products of small matrices. No exponent is ever positive.
#include "qwen/chunk.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "qwen/shape.h"

namespace qwen {

void check_chunk_delta_rule(const Qkv& qkv, const Tensor2& g, const Tensor2& beta, const Tensor3& S,
                            int chunk) {
  const int T = dim(qkv.v, 0), Hv = dim(qkv.v, 1), Dv = dim(qkv.v, 2), Dk = dim(qkv.k, 2);
  expect_shape("[chunk_delta_rule] g", g, {T, Hv});
  expect_shape("[chunk_delta_rule] beta", beta, {T, Hv});
  expect_shape("[chunk_delta_rule] S", S, {Hv, Dk, Dv});
  if (chunk < 1) {
    throw std::invalid_argument("[chunk_delta_rule] a chunk needs at least 1 token, not " +
                                std::to_string(chunk));
  }
}

namespace plain {
namespace {

// One head's part of a chunk of C tokens.
struct Chunk {
  Tensor2 q, k;     // [C, Dk]
  Tensor2 v;        // [C, Dv]
  Tensor1 g, beta;  // [C]
};

Chunk cut(const Qkv& qkv, const Tensor2& g, const Tensor2& beta, int key_head, int h, int first,
          int C) {
  const int Dk = dim(qkv.k, 2), Dv = dim(qkv.v, 2);
  Chunk c{uninit(C, Dk), uninit(C, Dk), uninit(C, Dv), uninit(C), uninit(C)};
  for (int i = 0; i < C; ++i) {
    std::copy_n(row(qkv.q, first + i) + Dk * key_head, Dk, row(c.q, i));
    std::copy_n(row(qkv.k, first + i) + Dk * key_head, Dk, row(c.k, i));
    std::copy_n(row(qkv.v, first + i) + Dv * h, Dv, row(c.v, i));
    c.g(i) = g(first + i, h);
    c.beta(i) = beta(first + i, h);
  }
  return c;
}

// exp(L) [C, C] on and below the diagonal, zeros above. Each sum starts at the diagonal: as the
// difference G[i] - G[j] it would lose its digits after a token that forgets nearly everything.
Tensor2 decay_between(const Tensor1& g) {
  const int C = dim(g, 0);
  Tensor2 decay = zeros(C, C);
  for (int i = 0; i < C; ++i) {
    float sum = 0;
    for (int j = i; j >= 0; --j) {
      decay(i, j) = std::exp(sum);
      sum += g(j);
    }
  }
  return decay;
}

// exp(G) [C].
Tensor1 decay_since_start(const Tensor1& g) {
  Tensor1 decay = uninit(dim(g, 0));
  float sum = 0;
  for (int i = 0; i < dim(g, 0); ++i) decay(i) = std::exp(sum += g(i));
  return decay;
}

float dot(const float* x, const float* y, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

// y [n] += a x [n]
void add_scaled(float* y, float a, const float* x, int n) {
  for (int i = 0; i < n; ++i) y[i] += a * x[i];
}

// y [Dv] = S^T x, S [Dk, Dv]
void read(const float* S, const float* x, int Dk, int Dv, float* y) {
  std::fill_n(y, Dv, 0.0f);
  for (int i = 0; i < Dk; ++i) add_scaled(y, x[i], S + Dv * i, Dv);
}

// d [C, Dv], the differences that are written, in the order of the tokens.
Tensor2 solve(const Chunk& c, const Tensor2& between, const Tensor1& since_start, const float* S) {
  const int C = dim(c.k, 0), Dk = dim(c.k, 1), Dv = dim(c.v, 1);
  Tensor2 d = uninit(C, Dv);
  for (int i = 0; i < C; ++i) {
    float* recalled = row(d, i);
    read(S, row(c.k, i), Dk, Dv, recalled);
    for (int j = 0; j < Dv; ++j) recalled[j] *= since_start(i);
    for (int j = 0; j < i; ++j) {
      add_scaled(recalled, between(i, j) * dot(row(c.k, i), row(c.k, j), Dk), row(d, j), Dv);
    }
    for (int j = 0; j < Dv; ++j) d(i, j) = c.beta(i) * (c.v(i, j) - recalled[j]);
  }
  return d;
}

// One chunk of one head; o points at the head's first row, rows are `stride` apart.
void run(const Chunk& c, float* S, float* o, int stride) {
  const int C = dim(c.k, 0), Dk = dim(c.k, 1), Dv = dim(c.v, 1);
  const Tensor2 between = decay_between(c.g);
  const Tensor1 since_start = decay_since_start(c.g);
  const Tensor2 d = solve(c, between, since_start, S);
  for (int i = 0; i < C; ++i, o += stride) {
    read(S, row(c.q, i), Dk, Dv, o);
    for (int j = 0; j < Dv; ++j) o[j] *= since_start(i);
    for (int j = 0; j <= i; ++j) {
      add_scaled(o, between(i, j) * dot(row(c.q, i), row(c.k, j), Dk), row(d, j), Dv);
    }
  }
  for (int i = 0; i < Dk * Dv; ++i) S[i] *= since_start(C - 1);
  for (int j = 0; j < C; ++j) {
    for (int i = 0; i < Dk; ++i) {
      add_scaled(S + Dv * i, between(C - 1, j) * c.k(j, i), row(d, j), Dv);
    }
  }
}

}  // namespace

Tensor3 chunk_delta_rule(const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                         const std::vector<int>& key_head, Tensor3& S, int chunk) {
  check_chunk_delta_rule(qkv, g, beta, S, chunk);
  const int T = dim(qkv.v, 0), Hv = dim(qkv.v, 1), Dv = dim(qkv.v, 2);
  Tensor3 o = uninit(T, Hv, Dv);
  for (int h = 0; h < Hv; ++h) {
    for (int first = 0; first < T; first += chunk) {
      const int C = std::min(chunk, T - first);
      const Chunk c = cut(qkv, g, beta, key_head[h], h, first, C);
      run(c, row(S, h), row(o, first) + Dv * h, Hv * Dv);
    }
  }
  return o;
}

}  // namespace plain
}  // namespace qwen
