// Many sequences in one forward, each answered as if it were alone.
//
//   step       1             2             3
//   A    ▒▒▒▒▒▒▒▒      ▒             ▒                 ▒ a row: one token that is read
//   B    ▒             ▒ its last                      A writes, B has written,
//   C                  ▒▒▒▒▒▒▒       ▒▒▒▒▒▒            C joins with a long prompt
//
// A sequence reads tokens that are there, its prompt, until none is unread; then the logits of the
// last one say which token to write, and that is the next to be read. So reading and writing need
// no two kinds of step: the one has many tokens unread, the other has one.
#pragma once

#include <random>
#include <span>
#include <vector>

#include "qwen/generate.h"
#include "qwen/model.h"
#include "qwen/sampler.h"

namespace qwen {

// What is asked for. Whatever it holds concerns one sequence; nothing is set for a whole batch.
struct Request {
  std::vector<int> prompt;
  Sampling sampling;
  int max_tokens = 128;
  OnToken on_token;  // may be empty; false ends the answer after that token
};

// A request that is being answered.
struct Running {
  int number = 0;  // the caller's, to know it by
  Request request;
  std::vector<int> ids;  // prompt and answer; the first state.position of them have been read
  State state;
  History history;
  std::mt19937_64 generator;  // its own: what others draw must not change what it draws
  Answer answer;
  bool ended = false;
  std::string error;  // one line: why it has ended without the rest of its answer; else empty
};

// Who runs, in the order in which they joined. Joining is push_back, leaving is erase.
using Batch = std::vector<Running>;

// Tokens that a request is read to at most: its answer's last one need not be.
int tokens_at_most(const Config& config, const Request& request);

// A request before its first step, with room for all its tokens: its state will not grow.
// std::invalid_argument, one line, for a prompt that cannot be read (check_tokens), sampling that
// is wrong (check_sampling), or fewer than 0 tokens.
Running start(const Config& config, int number, Request request);
void check_request(const Config& config, const Request& request);

// Tokens of it that have not been read.
int unread(const Running& running);

// How many rows each sequence reads in the next step, at most max_rows together. One row for
// everybody comes first, so that nobody who writes waits for a long prompt; what is left goes to
// those with more to read, in the order in which they joined. std::invalid_argument if there are
// more sequences than rows.
std::vector<int> share_rows(const Batch& batch, int max_rows);

// Reads so many rows of each sequence, all in one forward -> logits [n, vocab_size] for the n
// sequences that have nothing unread now, in their order. One with a value that is not finite has
// ended with its error; the others are as if it had not been there.
Tensor2 read_rows(const Model& model, const Ops& ops, Batch& batch, const std::vector<int>& rows);

// The next token of a sequence that has nothing unread, drawn from its logits [vocab_size].
int choose(Running& running, std::span<const float> logits);

// Adds that token to the answer, unless it ends there: by a token that ends texts, by as many as
// were asked for, by the context, or by on_token.
void add_token(const Config& config, Running& running, int id);

// One step: rows are shared out and read, those that can write do. Returns those whose answers
// have ended; they are no longer in the batch.
std::vector<Running> step(const Model& model, const Ops& ops, Batch& batch, int max_rows);

// Bytes that a state of so many tokens takes, and those that a state has taken, in use or reserved.
std::size_t bytes_for(const Config& config, int tokens);
std::size_t bytes_held(const State& state);

}  // namespace qwen
