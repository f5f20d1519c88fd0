// Chapter 8. What do 64 tokens at a time buy?
//
// New module: chunk, the delta rule as products of small matrices. The program shows that chunks of
// any size give the recurrent rule's result, counts the multiply-adds of both, and measures where
// the time goes: the order of the loops, blocks of columns that stay in the cache, and chunks.
// --chunk and --tokens change what is measured.
#include <cblas.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "qwen/blas_kernel.h"
#include "qwen/chunk.h"
#include "qwen/counted.h"
#include "qwen/deltanet.h"
#include "qwen/ladder.h"
#include "qwen/machine.h"
#include "qwen/parallel.h"
#include "qwen/program.h"

using namespace qwen;

namespace {

constexpr int kHeads = 4, kD = 128;  // heads of Qwen3.5-0.8B, a quarter of a layer's

struct Inputs {
  Qkv qkv;
  Tensor2 g, beta;
  std::vector<int> key_head{0, 1, 2, 3};
};

Tensor3 random_heads(std::mt19937& random, int T, float length) {
  Tensor3 x = uninit(T, kHeads, kD);
  const float size = length * std::sqrt(3.0f / kD);
  for (float& value : x) value = size * (static_cast<float>(random()) * 0x1p-31f - 1);
  return x;
}

// Keys and queries of about length 1 and Dk^-0.5; decays from nearly 1 to 0.5.
Inputs make_inputs(int T) {
  std::mt19937 random(1);
  const float q_length = 1 / std::sqrt(static_cast<float>(kD));
  Inputs in{{random_heads(random, T, q_length), random_heads(random, T, 1),
             random_heads(random, T, std::sqrt(static_cast<float>(kD)))},
            uninit(T, kHeads),
            uninit(T, kHeads)};
  const auto uniform = [&] { return static_cast<float>(random()) * 0x1p-32f; };
  for (float& g : in.g) g = -0.7f * std::pow(uniform(), 3.0f);
  for (float& beta : in.beta) beta = uniform();
  return in;
}

using Rule = std::function<Tensor3(const Inputs& in, Tensor3& S)>;

Rule recurrent(decltype(plain::delta_rule)* rule) {
  return [=](const Inputs& in, Tensor3& S) { return rule(in.qkv, in.g, in.beta, in.key_head, S); };
}
Rule chunked(decltype(plain::chunk_delta_rule)* rule, int chunk) {
  return [=](const Inputs& in, Tensor3& S) {
    return rule(in.qkv, in.g, in.beta, in.key_head, S, chunk);
  };
}

// The plain rule with i and j exchanged: every loop walks down a column of S.
Tensor3 down_the_columns(const Inputs& in, Tensor3& S) {
  const int T = dim(in.g, 0);
  Tensor3 o = zeros(T, kHeads, kD);
  for (int t = 0; t < T; ++t) {
    for (int h = 0; h < kHeads; ++h) {
      const float* k = row(in.qkv.k, t) + kD * h;
      const float* q = row(in.qkv.q, t) + kD * h;
      const float decay = std::exp(in.g(t, h));
      for (int j = 0; j < kD; ++j) {
        float* column = row(S, h) + j;
        float recalled = 0, read = 0;
        for (int i = 0; i < kD; ++i) recalled += (column[i * kD] *= decay) * k[i];
        const float d = in.beta(t, h) * (in.qkv.v(t, h, j) - recalled);
        for (int i = 0; i < kD; ++i) read += (column[i * kD] += k[i] * d) * q[i];
        o(t, h, j) = read;
      }
    }
  }
  return o;
}

// The largest difference of outputs and states, relative to the largest output.
double difference(const Inputs& in, const Rule& a, const Rule& b) {
  Tensor3 S_a = zeros(kHeads, kD, kD), S_b = S_a;
  const Tensor3 o_a = a(in, S_a), o_b = b(in, S_b);
  double apart = 0, largest = 0;
  for (std::size_t i = 0; i < o_a.size(); ++i) {
    apart = std::max(apart, std::abs(double{o_a.data()[i]} - o_b.data()[i]));
    largest = std::max(largest, std::abs(double{o_a.data()[i]}));
  }
  for (std::size_t i = 0; i < S_a.size(); ++i) {
    apart = std::max(apart, std::abs(double{S_a.data()[i]} - S_b.data()[i]));
  }
  return apart / largest;
}

void show_equality(int chunk) {
  const Inputs in = make_inputs(203);
  const Rule rule = recurrent(plain::delta_rule);
  double largest = 0;
  std::printf("203 tokens, %d heads, S [%d, %d]\n", kHeads, kD, kD);
  for (const int size : {1, 16, chunk, 203}) {
    const double apart = std::max(difference(in, rule, chunked(plain::chunk_delta_rule, size)),
                                  difference(in, rule, chunked(fast::chunk_delta_rule, size)));
    std::printf("  %3d at a time: the recurrent rule's result within 1e-5: %s\n", size,
                apart < 1e-5 ? "yes" : "NO");
    largest = std::max(largest, apart);
  }
  std::printf("~ largest difference %.1e\n", largest);
}

void show_counts() {
  std::printf("\nmultiply-adds per token and head, D = %d\n", kD);
  std::printf("  token by token %10d   (of them %d only multiply)\n", 4 * kD * kD, kD * kD);
  for (const int C : {16, 32, 64, 128, 256}) {
    const int count = 3 * kD * kD + 2 * C * kD;
    std::printf("  chunks of %4d %10d   %.3f times as many\n", C, count, count / (4.0 * kD * kD));
  }
}

// The shortest of several runs, in seconds: what others do on the machine only ever adds to it.
double seconds(const Inputs& in, const Rule& rule) {
  Tensor3 S = zeros(kHeads, kD, kD);
  double best = 1e9, total = 0;
  while (total < 0.3) {
    const auto start = std::chrono::steady_clock::now();
    rule(in, S);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count());
    total += taken.count();
  }
  return best;
}

void show_times(int T, int chunk) {
  set_thread_count(1);
  openblas_set_num_threads(1);
  const Inputs in = make_inputs(T);
  const double peak = ladder::peak_multiply_adds();
  std::printf("\n%s, %d heads, one thread\n", counted(T, "token").c_str(), kHeads);
  std::printf("  rule                                ms   of the peak by its count\n");
  const auto measure = [&](const char* name, const Rule& rule, double count) {
    const double s = seconds(in, rule);
    std::printf("~ %-30s %7.2f %8.1f %%\n", name, 1e3 * s, 100 * count * T * kHeads / s / peak);
    return s;
  };
  const double by_token = 4.0 * kD * kD, by_chunk = 3.0 * kD * kD + 2.0 * std::min(chunk, T) * kD;
  measure("down the columns of S", down_the_columns, by_token);
  measure("along the rows: plain", recurrent(plain::delta_rule), by_token);
  const double fast = measure("blocks of columns: fast", recurrent(fast::delta_rule), by_token);
  measure("chunks, plain", chunked(plain::chunk_delta_rule, chunk), by_chunk);
  const double chunks =
      measure("chunks, OpenBLAS", chunked(fast::chunk_delta_rule, chunk), by_chunk);
  std::printf("~ Chunks take %.2f times as long as blocks of columns. [%s; OpenBLAS: %s]\n",
              chunks / fast, cpu_name().c_str(), openblas_get_corename());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Chapter 8: the delta rule in chunks."};
  int chunk = 64, tokens = 512;
  add_integer(app, "--chunk", chunk, 1, 4096, "tokens at a time");
  add_integer(app, "--tokens", tokens, 1, 65536, "tokens to measure with");
  return run_program(app, argc, argv, [&] {
    choose_blas_kernel(argv);
    show_equality(chunk);
    show_counts();
    show_times(tokens, chunk);
  });
}
