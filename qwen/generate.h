// The loop that writes: choose a token, read it, until something ends the answer.
//
//   prompt ─ read ─ logits ─ distribution ─ draw ─ id ─┬─ one that ends texts, or no more: done
//              ↑                                       │
//              └───────────────────────────────────────┘
#pragma once

#include <functional>

#include "qwen/cache.h"
#include "qwen/sampler.h"

namespace qwen {

// Why an answer ended.
enum class Ending {
  end_token,   // the model said so: one of Config::eos_token_id
  max_tokens,  // as many as were asked for
  context,     // prompt and answer together have max_position_embeddings tokens
  stopped,     // the caller's on_token returned false
};

struct Answer {
  std::vector<int> ids;  // without the token that ended it
  Ending ending = Ending::max_tokens;
  int end_token = -1;  // the token that ended it, where one did
};

// Whether `id` ends a text: it is any one of Config::eos_token_id.
bool is_end_token(const Config& config, int id);

// Called with every token of the answer as it comes; false stops the answer after it. May be empty.
using OnToken = std::function<bool(int id)>;

// Reads `prompt` after what `sequence` holds, then writes at most `max_tokens` tokens. For
// penalties, all that `sequence` held counts as prompt.
// What has been read at the end (sequence.ids): all of the answer where an end token ended it, else
// all but its last token. The token that ended it has not been read.
Answer generate(const Model& model, const Ops& ops, Sequence& sequence, std::span<const int> prompt,
                const Sampling& sampling, int max_tokens, const OnToken& on_token);

}  // namespace qwen
