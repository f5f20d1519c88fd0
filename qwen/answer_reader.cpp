#include "qwen/answer_reader.h"

#include <utility>

#include "qwen/python_text.h"

namespace qwen {
namespace {

// Takes `prefix` off the front, where it stands there.
bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Takes everything up to `end` off the front, and `end`.
std::optional<std::string> take_until(std::string_view& text, std::string_view end) {
  const std::size_t at = text.find(end);
  if (at == text.npos) return std::nullopt;
  std::string taken(text.substr(0, at));
  text.remove_prefix(at + end.size());
  return taken;
}

}  // namespace

std::optional<ToolCall> parse_call(std::string_view text) {
  text = strip(text);
  if (!take(text, "<function=")) return std::nullopt;
  const auto name = take_until(text, ">\n");
  if (!name) return std::nullopt;
  ToolCall call{*name};
  while (take(text, "<parameter=")) {
    const auto key = take_until(text, ">\n");
    const auto value = key ? take_until(text, "\n</parameter>\n") : std::nullopt;
    if (!value) return std::nullopt;
    call.arguments[*key] = *value;
  }
  if (text != "</function>") return std::nullopt;
  return call;
}

AnswerReader::AnswerReader(const Tokenizer& tokenizer, const Prompt& prompt, OnText on_text)
    : tokenizer_(tokenizer),
      on_text_(std::move(on_text)),
      message_(prompt.begun),
      section_(prompt.thinking ? Section::thought : Section::content) {
  // Set, if only to nothing: a content that spells </think> must not be taken for a thought.
  if (!message_.reasoning) message_.reasoning = "";
}

void AnswerReader::read(int id) {
  const auto is = [&](const char* marker) { return token_id(tokenizer_, marker) == id; };
  if (is("<think>") && message_.content.empty()) {
    enter(Section::thought);
  } else if (is("</think>") && section_ == Section::thought) {
    enter(Section::content);
  } else if (is("<tool_call>") && section_ == Section::content) {
    enter(Section::call);
  } else if (is("</tool_call>") && section_ == Section::call) {
    enter(Section::content);
  } else {
    add_text(decode_next(tokenizer_, stream_, id));
  }
}

void AnswerReader::add_text(const std::string& text) {
  if (section_ == Section::call) {
    call_ += text;
    if (on_text_ && !text.empty()) on_text_(section_, text);
    return;
  }
  std::string& said = section_ == Section::thought ? *message_.reasoning : message_.content;
  pending_ += text;
  const std::string_view certain = strip(pending_);
  if (certain.empty()) {
    if (said.empty()) pending_.clear();
    return;
  }
  const std::size_t first = said.empty() ? certain.data() - pending_.data() : 0;
  const std::size_t end = certain.data() + certain.size() - pending_.data();
  const std::string next = pending_.substr(first, end - first);
  pending_.erase(0, end);
  said += next;
  if (on_text_) on_text_(section_, next);
}

void AnswerReader::enter(Section section) {
  // The section before is complete: half a character held will not become a whole one.
  add_text(qwen::finish(stream_));
  stream_ = {};
  pending_.clear();
  if (section_ == Section::call) end_call();
  if (section == Section::call && on_text_) on_text_(section, "<tool_call>");
  section_ = section;
}

void AnswerReader::end_call() {
  if (on_text_) on_text_(Section::call, "</tool_call>\n");
  if (auto call = parse_call(call_)) {
    message_.tool_calls.push_back(std::move(*call));
  } else {
    message_.content += "<tool_call>" + call_ + "</tool_call>";  // words like any others
  }
  call_.clear();
}

Message AnswerReader::finish() {
  add_text(qwen::finish(stream_));
  if (section_ == Section::call) message_.content += "<tool_call>" + call_;
  return std::move(message_);
}

}  // namespace qwen
