// A conversation that goes on from what the model remembers of it.
//
//   messages ─ render ─ prompt   │ history            │ answer's turn opened │
//                                │ known     │ read   │ read                 │ written …
//   sequence                     └───────────┴────────┴ snapshot
//
// The ids of a conversation are always those that the template renders for its messages: what was
// written before does not depend on how it came about, so a conversation that is saved and loaded
// goes on with the same bits. The template drops the think block of an answer as soon as the next
// question is there, so the next prompt parts from the sequence where that answer begins: a
// snapshot stands there, and the answer is all that is read again.
#pragma once

#include <functional>
#include <string>

#include "qwen/answer_reader.h"
#include "qwen/generate.h"

namespace qwen {

// Who answers.
struct Voice {
  const Model& model;
  const Ops& ops;
  const Tokenizer& tokenizer;
  ChatTemplate form;
};

struct Conversation {
  Chat chat;
  Sequence sequence;       // what has been read and written last
  bool is_loaded = false;  // the messages come from a file, and have not been read since
};

Conversation empty_conversation(const Config& config);

struct AnswerOptions {
  Sampling sampling;
  int max_tokens = 2048;
  int loop_tokens = 128;  // so many in an exact repetition end the answer; 0: never
};

// What one answer took.
struct AnswerStats {
  int prompt = 0;     // tokens of the conversation up to the answer
  int known = 0;      // of them remembered
  int read = 0;       // the others, or fewer where that was given up
  int again = 0;      // of the others: how many come before the last message
  std::string why;    // … and why they are read again; empty where none is
  int written = 0;    // tokens of the answer
  int positions = 0;  // the sequence's length in the end
  double read_seconds = 0, write_seconds = 0;
  Ending ending = Ending::stopped;
  int loop_period = 0;  // of the repetition that ended it, where one did
};

// Asked between tokens, and between pieces of a long prompt.
using WantsToStop = std::function<bool()>;

// Lets the voice answer the last message (or continue it, if it is the assistant's), and adds the
// answer to the messages. One that is stopped before its first token adds nothing. Its seed is
// sampling.seed plus the number of the assistant's messages before it.
// std::invalid_argument, and nothing changed but what is remembered, where the template does not
// take the messages or they do not fit into the model's context.
AnswerStats answer(const Voice& voice, Conversation& conversation, const AnswerOptions& options,
                   const OnText& on_text = {}, const WantsToStop& wants_to_stop = {});

// The tokens that end an answer: those that the config names, and those of the tokenizer.
std::vector<int> end_tokens(const Config& config, const Tokenizer& tokenizer);

}  // namespace qwen
