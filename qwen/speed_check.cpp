#include "qwen/speed_check.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "qwen/chunk.h"
#include "qwen/parallel.h"
#include "qwen/random_model.h"
#include "qwen/tables.h"
#include "qwen/task.h"

namespace qwen {
namespace {

// 70 tokens: more than a chunk.
constexpr int kTokens = 70;

Tensor2 logits(const Model& model, const Ops& ops, int piece) {
  const std::vector<int> ids = sample_ids(model.config, kTokens);
  State state = empty_state(model.config);
  Tensor2 last;
  for (int i = 0; i < kTokens; i += piece) {
    last = forward(model, ops,
                   std::span(ids).subspan(static_cast<std::size_t>(i),
                                          static_cast<std::size_t>(std::min(piece, kTokens - i))),
                   state);
  }
  return last;
}

// |x - y| <= tolerance * max |y|; with tolerance 0 the same bits.
void expect_same(const std::string& what, const Tensor2& x, const Tensor2& y, float tolerance) {
  float largest = 0, difference = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    largest = std::max(largest, std::abs(y.data()[i]));
    difference = std::max(difference, std::abs(x.data()[i] - y.data()[i]));
  }
  if (difference <= tolerance * largest) return;
  throw std::runtime_error("check: " + what + " differ by " + std::to_string(difference / largest) +
                           " of the largest logit, " + std::to_string(tolerance) +
                           " is allowed; nothing is timed before they agree");
}

}  // namespace

void check_results(int threads) {
  // Four layers of a few hundred additions each: rounding stays far below this share.
  constexpr float kRounding = 5e-5f;
  // A bf16 model rounds activations, too: one that falls to the other side moves by 2^-9.
  constexpr float kRoundingBf16 = 0.03f;
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    const Model model = random_model(named_shape("tiny"), dtype).model;
    const std::string name = format(dtype).name;
    const float rounding = dtype == DType::BF16 ? kRoundingBf16 : kRounding;
    set_thread_count(threads);
    const Tensor2 fast = logits(model, fast_ops(), kTokens);
    expect_same("fast and plain operators in " + name, fast, logits(model, plain_ops(), kTokens),
                rounding);
    expect_same("one forward and single tokens in " + name, fast, logits(model, fast_ops(), 1), 0);
    Ops chunked = fast_ops();
    chunked.delta_rule = [](const Qkv& qkv, const Tensor2& g, const Tensor2& beta,
                            const std::vector<int>& key_head, Tensor3& S) {
      return fast::chunk_delta_rule(qkv, g, beta, key_head, S);
    };
    expect_same("chunks and single tokens in " + name, logits(model, chunked, kTokens), fast,
                rounding);
    set_thread_count(threads == 1 ? 2 : 1);
    expect_same("1 thread and several in " + name, fast, logits(model, fast_ops(), kTokens), 0);
  }
  set_thread_count(threads);
}

}  // namespace qwen
