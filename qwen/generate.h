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

// How many tokens an answer may have, and why it ends after so many: as many as were asked for, or
// as fit into the context behind the `position` tokens before it.
struct AnswerLimit {
  int tokens;
  Ending ending;
};
AnswerLimit answer_limit(const Config& config, int position, int max_tokens);

// Puts a token into the answer, unless it is one that ends texts. True where the answer ends with
// it: by that, by its limit, or by on_token.
bool add_token(const Config& config, const AnswerLimit& limit, int id, const OnToken& on_token,
               Answer& answer);

// Reads `prompt` after what `sequence` holds, then writes at most `max_tokens` tokens. For
// penalties, all that `sequence` held counts as prompt.
// What has been read at the end (sequence.ids): all of the answer where an end token ended it, else
// all but its last token. The token that ended it has not been read.
Answer generate(const Model& model, const Ops& ops, Sequence& sequence, std::span<const int> prompt,
                const Sampling& sampling, int max_tokens, const OnToken& on_token);

}  // namespace qwen
