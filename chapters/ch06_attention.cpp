// Chapter 6. How does a token find what it needs among all tokens before it?
//
// New module: attention (grouped queries, normalised q and k, output gate, KV cache). The program
// builds by hand a head that continues a pattern, and shows what each query pays to each key; then
// it runs a small layer with random weights in one go, in pieces and over a dirty cache, and
// counts what the cache costs. With --speed it measures the plain and the fast version.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "qwen/attention.h"
#include "qwen/ladder.h"
#include "qwen/linear.h"
#include "qwen/norm.h"
#include "qwen/program.h"
#include "qwen/rope.h"

using namespace qwen;

namespace {

// ---- one head, made by hand ----

// The value of token s is the s-th unit vector: then what a query reads is its weights.
void show_weights() {
  const std::string text = "ABCDABC";
  const int T = static_cast<int>(text.size()), D = 8;
  const auto letter = [&](int t) { return text[t] - 'A'; };
  Tensor3 q = zeros(T, 1, D), keys = zeros(T, 1, D), places = zeros(T, 1, D);
  for (int t = 0; t < T; ++t) {
    q(t, 0, letter(t)) = 5 * std::sqrt(8.0f);  // "who stands behind a letter like mine?"
    if (t > 0) keys(t, 0, letter(t - 1)) = 1;  // "I stand behind this letter"
    places(t, 0, t) = 1;
  }
  const Tensor2 weights = plain::attention(q, keys, places, 0);  // [T, D]

  Tensor2 gate = zeros(T, D);
  for (int t = 0; t < T; ++t) std::fill_n(row(gate, t), D, t < 4 ? -5.0f : 5.0f);
  const Tensor2 gated = plain::sigmoid_gate(weights, gate);

  std::printf("query      what it pays to the key of\n     ");
  for (const char key : text) std::printf("     %c", key);
  std::printf("     sum   gate   sum behind the gate\n");
  for (int t = 0; t < T; ++t) {
    float sum = 0, left = 0;
    std::printf("    %c", text[t]);
    for (int s = 0; s < T; ++s) {
      s <= t ? std::printf("  %.2f", weights(t, s)) : std::printf("     .");
      sum += weights(t, s);
      left += gated(t, s);
    }
    std::printf("    %.2f   %4.0f   %.2f\n", sum, gate(t, 0), left);
  }
}

// ---- a layer: in one go, in pieces, over a dirty cache ----

Tensor2 random_rows(int rows, int columns, unsigned seed) {
  std::mt19937 random(seed);
  Tensor2 x = uninit(rows, columns);
  for (float& value : x) value = static_cast<float>(random()) * 0x1p-31f - 1;
  return x;
}

Weight random_weight(int rows, int columns, unsigned seed) {
  const auto values = std::make_shared<const Tensor2>(random_rows(rows, columns, seed));
  const auto* data = reinterpret_cast<const std::byte*>(values->data());
  return {DType::F32, rows, columns, data, nullptr, values, "w"};
}

Ops plain_ops() {
  Ops ops;
  ops.rms_norm = plain::rms_norm;
  ops.products = one_by_one(plain::linear);
  ops.rope = plain::rope;
  ops.attention = plain::attention;
  ops.sigmoid_gate = plain::sigmoid_gate;
  return ops;
}

Ops fast_ops() {
  Ops ops;
  ops.rms_norm = fast::rms_norm;
  ops.products = fast::products;
  ops.rope = fast::rope;
  ops.attention = fast::attention;
  ops.sigmoid_gate = fast::sigmoid_gate;
  return ops;
}

Config small_config() {
  Config config;
  config.hidden_size = 24;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.rope_theta = 1e4;
  config.partial_rotary_factor = 0.5;
  config.rms_norm_eps = 1e-6f;
  config.qk_norm = config.attn_output_gate = true;
  return config;
}

void show_layer() {
  const Config c = small_config();
  const int H = c.hidden_size, q = c.num_attention_heads * c.head_dim;
  const int kv = c.num_key_value_heads * c.head_dim;
  const Tensor1 scale{1, 1, 1, 1, 1, 1, 1, 1};
  const Attention layer{random_weight(2 * q, H, 1),
                        random_weight(kv, H, 2),
                        random_weight(kv, H, 3),
                        random_weight(H, q, 4),
                        scale,
                        scale};
  const Tensor2 x = random_rows(130, H, 5);
  // `count` rows of x, continuing the sequence that the cache remembers.
  const auto forward = [&](const Ops& ops, int count, KVCache& cache) {
    const std::vector<Share<KVCache>> alone{{&cache, count}};
    return attention_forward(ops, c, layer, slice(x, cache.length, count), alone);
  };

  std::printf("\n%d query heads, %d key/value heads:", c.num_attention_heads,
              c.num_key_value_heads);
  for (int h = 0; h < c.num_attention_heads; ++h) {
    std::printf(" %d reads %d%s", h, h / (c.num_attention_heads / c.num_key_value_heads),
                h + 1 < c.num_attention_heads ? "," : "\n");
  }
  KVCache cache, plain_cache;
  const Tensor2 y = forward(fast_ops(), 130, cache);
  const Tensor2 y_plain = forward(plain_ops(), 130, plain_cache);
  std::printf("x [130, %d] -> y [%d, %d]; cache: keys, values [%d, %d, %d]\n", H, dim(y, 0),
              dim(y, 1), cache.length, dim(cache.keys, 1), dim(cache.keys, 2));
  std::printf("plain: y[8] = %7.4f %7.4f %7.4f …\n", y_plain(8, 0), y_plain(8, 1), y_plain(8, 2));
  std::printf("fast:  y[8] = %7.4f %7.4f %7.4f …\n\n", y(8, 0), y(8, 1), y(8, 2));

  const auto bits = [&](int first, const Tensor2& part) {
    const bool same = std::memcmp(row(y, first), part.data(), part.size() * sizeof(float)) == 0;
    return same ? "the same bits" : "OTHER BITS";
  };
  for (const int piece : {1, 63, 64, 65}) {
    KVCache fresh;
    Tensor2 pieces = uninit(130, H);
    while (fresh.length < 130) {
      const int at = fresh.length;
      const Tensor2 part = forward(fast_ops(), std::min(piece, 130 - at), fresh);
      std::copy_n(part.data(), part.size(), row(pieces, at));
    }
    std::printf("%2d tokens at a time: %s\n", piece, bits(0, pieces));
  }
  truncate(cache, 70);
  std::fill(row(cache.keys, 70), row(cache.keys, 130), NAN);
  std::fill(row(cache.values, 70), row(cache.values, 130), NAN);
  std::printf("cut after 70, NaN written behind, 60 tokens read again: %s\n",
              bits(70, forward(fast_ops(), 60, cache)));
}

// ---- what a cache costs ----

void show_memory() {
  struct Shape {
    const char* name;
    int layers, kv_heads, head_dim;
  };
  std::printf(
      "\nKV cache in float32      layers  kv heads  head_dim  bytes a token  32768 tokens\n");
  for (const Shape& s : {Shape{"Qwen3.5-0.8B", 6, 2, 256},
                         {"  full in all layers", 24, 2, 256},
                         {"  and 8 kv heads", 24, 8, 256},
                         {"SmolLM2-135M", 30, 3, 64}}) {
    const int bytes = s.layers * 2 * s.kv_heads * s.head_dim * static_cast<int>(sizeof(float));
    std::printf("%-24s %6d %9d %9d %14d %9.2f GiB\n", s.name, s.layers, s.kv_heads, s.head_dim,
                bytes, bytes * 32768.0 / (1 << 30));
  }
}

// ---- plain and fast, at Qwen3.5-0.8B's shape ----

void show_speed() {
  constexpr int kHeads = 8, kKvHeads = 2, kDim = 256;
  std::printf("8 query heads, 2 key/value heads of 256\n");
  std::printf("  queries   keys before   plain: ms   fast: ms   GFLOP/s   GB/s of keys, values\n");
  struct Case {
    int T, position;
  };
  for (const Case& at : {Case{1, 1023}, {1, 8191}, {1, 32767}, {256, 0}, {256, 768}}) {
    const int T = at.T, position = at.position, S = position + T;
    const auto random = [](int rows, int heads) {
      return reshape(random_rows(rows, heads * kDim, 1), rows, heads, kDim);
    };
    const Tensor3 q = random(T, kHeads), keys = random(S, kKvHeads), values = random(S, kKvHeads);
    const double plain_s = ladder::shortest([&] { plain::attention(q, keys, values, position); });
    const double s = ladder::shortest([&] { fast::attention(q, keys, values, position); });
    const double pairs = static_cast<double>(T) * position + T * (T + 1) / 2;  // of query and key
    std::printf("~ %7d %13d %11.2f %10.3f %9.1f %15.1f\n", T, position, 1e3 * plain_s, 1e3 * s,
                1e-9 * pairs * kHeads * 4 * kDim / s,
                1e-9 * (keys.size() + values.size()) * sizeof(float) / s);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Chapter 6: attention and its cache."};
  bool speed = false;
  app.add_flag("--speed", speed, "measure the plain and the fast version");
  return run_program(app, argc, argv, [&] {
    if (speed) return show_speed();
    show_weights();
    show_layer();
    show_memory();
  });
}
