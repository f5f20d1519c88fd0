// An answer as its tokens come: what the model thinks, what it says, which tools it calls.
//
//   ids ─ markers <think> </think> <tool_call> </tool_call> ─ sections ─ text ─ Message
//
// Text is handed on as soon as it is certain: never half a character, and no white space before it
// is known that more follows, since the template strips it at both ends.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "qwen/chat_template.h"

namespace qwen {

enum class Section { thought, content, call };

// Called with text as it becomes certain. May be empty.
using OnText = std::function<void(Section section, std::string_view text)>;

class AnswerReader {
 public:
  // Reads on where the prompt ends.
  AnswerReader(const Tokenizer& tokenizer, const Prompt& prompt, OnText on_text);

  void read(int id);

  // The whole message, after the last token.
  Message finish();

 private:
  void add_text(const std::string& text);
  void enter(Section section);
  void end_call();

  const Tokenizer& tokenizer_;
  OnText on_text_;
  Message message_;
  Section section_;
  TextStream stream_;
  std::string call_;     // what a call says so far
  std::string pending_;  // white space that may be the end
};

// What stands between <tool_call> and </tool_call>; nothing where it is no well-formed call. The
// arguments' values are texts.
std::optional<ToolCall> parse_call(std::string_view text);

}  // namespace qwen
