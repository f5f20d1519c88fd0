// A file of prompts, one JSON object a line, and for each of them a line of answer, in order.
//
//   {"prompt": "12 + 30 =", "stop": "\n"}  →  {"line":1,"text":" 42","tokens":3,"ended":"stop"}
//   {"prompt": 12}                         →  {"line":2,"error":"sums.jsonl:2: prompt is 12, …"}
//   {"messages": [{"role": "user", "content": "Hello!"}]}  →  {"line":3,"text":"Hello! How …", …}
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "qwen/chat_template.h"
#include "qwen/scheduler.h"

namespace qwen {

// What one line asks for, and what came of it.
struct PromptLine {
  int number = 0;      // in the file, from 1
  std::string source;  // "sums.jsonl:2", as messages begin
  OrderedJson id;      // the caller's, given back with the answer; null where there is none
  Request request;
  std::vector<std::string> stop;  // texts that end the answer, and are no part of it
  Answer answer;
  std::string error;      // one line: why there is no answer; empty where there is one
  bool answered = false;  // one of the two is there
};

// The lines of a file's text, empty ones left out; one that is wrong has its error. What a line
// does not say is as in `defaults`. Its fields: prompt (a text to continue) or messages (a
// conversation as in messages_json.h, also with tools and enable_thinking); id; stop (a text or
// several); max_new; and what Sampling has, by its names there.
// `context`: tokens that a prompt may have.
std::vector<PromptLine> read_prompts(std::string_view text, const std::string& source,
                                     const Tokenizer& tokenizer, const ChatTemplate& form,
                                     int context, const Request& defaults);

// Ends an answer as soon as its text has one of these.
OnToken stop_at(const Tokenizer& tokenizer, const std::vector<std::string>& stop);

// What the answer's tokens add to the text of the prompt, up to the first of its stop texts.
std::string answer_text(const Tokenizer& tokenizer, const PromptLine& line);

// The line that goes out for one that is answered. "ended" is by what: "end_token", "max_tokens",
// "context" or "stop".
std::string answer_json(const Tokenizer& tokenizer, const PromptLine& line);

// Called for every line in order, as soon as it and all before it are answered.
using OnAnswer = std::function<void(const PromptLine& line)>;

// Called before each step; false gives up what is not answered yet.
using OnStep = std::function<bool(const Scheduler& scheduler)>;

// Answers them all. A line that cannot be answered gets its error, and holds up nobody.
void answer_prompts(const Model& model, const Ops& ops, std::vector<PromptLine> lines,
                    const BatchLimits& limits, const OnAnswer& on_answer, const OnStep& on_step);

}  // namespace qwen
