// A file of prompts, one JSON object a line, and for each of them a line of answer, in order.
//
//   {"prompt": "12 + 30 =", "stop": "\n"}  →  {"line": 1, "text": " 42", "tokens": 3, "ended":
//   "stop"}
//   {"prompt": 12}                         →  {"line": 2, "error": "sums.jsonl:2: prompt is 12, …"}
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "qwen/json.h"
#include "qwen/scheduler.h"
#include "qwen/tokenizer.h"

namespace qwen {

// What one line asks for.
struct PromptLine {
  int line = 0;        // from 1
  std::string source;  // "sums.jsonl:2", as messages begin
  Json id;             // the caller's, given back with the answer; null where there is none
  Request request;
  std::vector<std::string> stop;  // texts that end the answer, and are no part of it
  std::string error;              // one line: why there is no answer; empty where there is one
};

// The prompts of a file's text, empty lines left out. A line that is wrong becomes a PromptLine
// with an error. What a line does not say is as in `defaults`. Fields of a line: prompt, which must
// be there, id, stop (a text or several), max_new, seed, and what Sampling has, by its names there.
std::vector<PromptLine> read_prompts(std::string_view text, const std::string& source,
                                     const Tokenizer& tokenizer, const Request& defaults);

// Ends an answer as soon as its text has one of these.
OnToken stop_at(const Tokenizer& tokenizer, const std::vector<std::string>& stop);

// What an answer's tokens add to the text of their prompt, up to the first of `stop`.
std::string answer_text(const Tokenizer& tokenizer, const Answer& answer,
                        const std::vector<std::string>& stop);

// "end_token", "max_tokens", "context" or "stop".
const char* ending_name(Ending ending);

// Called for every prompt in order with its line of answer, as soon as those before it have theirs.
using OnAnswer = std::function<void(const PromptLine& prompt, const std::string& json)>;

// Called before each step; false gives up what is not answered yet.
using OnStep = std::function<bool(const Scheduler& scheduler)>;

// Answers all of them. One that cannot be answered gets its line too, and holds up nobody.
void answer_prompts(const Model& model, const Ops& ops, const Tokenizer& tokenizer,
                    std::vector<PromptLine> prompts, const BatchLimits& limits,
                    const OnAnswer& on_answer, const OnStep& on_step);

}  // namespace qwen
