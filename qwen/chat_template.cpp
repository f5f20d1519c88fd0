#include "qwen/chat_template.h"

#include <stdexcept>

#include "qwen/python_text.h"

namespace qwen {
namespace {

constexpr std::string_view kMarkers[] = {"<|im_start|>",    "<|im_end|>",      "<think>",
                                         "</think>",        "<tool_call>",     "</tool_call>",
                                         "<tool_response>", "</tool_response>"};

// The text of a conversation as it is written, and its ids.
class Writer {
 public:
  Writer(const Tokenizer& tokenizer, int context) : tokenizer_(tokenizer), context_(context) {}

  // What the template says: markers in it are markers.
  void write(std::string_view text) {
    while (!text.empty()) {
      const std::string_view marker = marker_at(text);
      const auto id = marker.empty() ? std::nullopt : token_id(tokenizer_, marker);
      const std::string_view part = text.substr(0, marker.empty() ? 1 : marker.size());
      if (id) {
        end_stretch();
        if (marker == kMarkers[0]) prompt_.turns.push_back(static_cast<int>(prompt_.ids.size()));
        prompt_.ids.push_back(*id);
      } else {
        stretch_ += part;
      }
      prompt_.text += part;
      text.remove_prefix(part.size());
    }
  }

  // What somebody else says: text, whatever it looks like.
  void quote(std::string_view text) {
    stretch_ += text;
    prompt_.text += text;
  }

  // What is written last belongs to the answer: its beginning, or an open think block.
  Prompt finish(Message begun, bool thinking) {
    end_stretch();
    prompt_.begun = std::move(begun);
    prompt_.thinking = thinking;
    return std::move(prompt_);
  }

 private:
  static std::string_view marker_at(std::string_view text) {
    for (const std::string_view marker : kMarkers) {
      if (text.starts_with(marker)) return marker;
    }
    return {};
  }

  // Ordinary text between two markers is one piece for the tokenizer.
  void end_stretch() {
    expect_room(tokenizer_, stretch_, context_ - static_cast<int>(prompt_.ids.size()));
    const std::vector<int> ids = encode(tokenizer_, stretch_, AddedTokens::as_text);
    prompt_.ids.insert(prompt_.ids.end(), ids.begin(), ids.end());
    stretch_.clear();
  }

  const Tokenizer& tokenizer_;
  const int context_;
  Prompt prompt_;
  std::string stretch_;
};

[[noreturn]] void fail(const std::string& why) {
  throw std::invalid_argument("[chat template] " + why);
}

// ---- ChatML ----

Prompt render_chatml(const ChatTemplate& form, const Chat& chat, Writer out) {
  if (!chat.tools.empty()) fail("this model's template knows no tools");
  const std::vector<Message>& messages = chat.messages;
  if (messages.front().role != Role::system && !form.default_system.empty()) {
    out.write("<|im_start|>system\n" + form.default_system + "<|im_end|>\n");
  }
  const bool continues = messages.back().role == Role::assistant;
  for (const Message& message : messages) {
    const bool is_open = continues && &message == &messages.back();
    if (!message.tool_calls.empty()) fail("this model's template knows no calls of tools");
    out.write("<|im_start|>" + name_of(message.role) + "\n");
    out.quote(message.content);
    if (!is_open) out.write("<|im_end|>\n");
  }
  if (continues) return out.finish(messages.back(), false);
  out.write("<|im_start|>assistant\n");
  return out.finish({Role::assistant, ""}, false);
}

// ---- Qwen3.5 ----

// What stands around the descriptions of the tools, word for word what the model was trained on.
constexpr std::string_view kBeforeTools =
    "# Tools\n\nYou have access to the following functions:\n\n<tools>";
constexpr std::string_view kAfterTools =
    "\n</tools>\n\n"
    "If you choose to call a function ONLY reply in the following format with NO suffix:\n\n"
    "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n"
    "</parameter>\n<parameter=example_parameter_2>\nThis is the value for the second parameter\n"
    "that can span\nmultiple lines\n</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\n"
    "Reminder:\n- Function calls MUST follow the specified format: an inner "
    "<function=...></function> block must be nested within <tool_call></tool_call> XML tags\n"
    "- Required parameters MUST be specified\n- You may provide optional reasoning for your "
    "function call in natural language BEFORE the function call, but NOT after\n- If there is no "
    "function call available, answer the question like normal with your current knowledge and do "
    "not tell the user about function calls\n</IMPORTANT>";

void write_system(const Chat& chat, Writer& out) {
  const Message& first = chat.messages.front();
  const bool has_message = first.role == Role::system;
  if (!has_message && chat.tools.empty()) return;
  const std::string_view content = has_message ? strip(first.content) : "";
  out.write("<|im_start|>system\n");
  if (!chat.tools.empty()) {
    out.write(kBeforeTools);
    for (const OrderedJson& tool : chat.tools) {
      out.write("\n");
      out.quote(python_json(tool));
    }
    out.write(kAfterTools);
    if (!content.empty()) out.write("\n\n");
  }
  out.quote(content);
  out.write("<|im_end|>\n");
}

// The last message in which a user asks something; results of tools can come as a user's, too.
std::size_t last_question(const std::vector<Message>& messages) {
  for (std::size_t n = messages.size(); n-- > 0;) {
    const std::string_view content = strip(messages[n].content);
    const bool is_result =
        content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
    if (messages[n].role == Role::user && !is_result) return n;
  }
  fail("no message of a user that asks something");
}

std::string_view without_newlines(std::string_view text) {
  while (text.starts_with('\n')) text.remove_prefix(1);
  return text;
}

// What an assistant thought, and what it said.
struct Answered {
  std::string_view reasoning, content;
};

Answered split_reasoning(const Message& message) {
  constexpr std::string_view begin = "<think>", end = "</think>";
  const std::string_view content = strip(message.content);
  if (message.reasoning) return {strip(*message.reasoning), content};
  const std::size_t first_end = content.find(end);
  if (first_end == content.npos) return {"", content};
  std::string_view reasoning = content.substr(0, first_end);
  if (const auto at = reasoning.rfind(begin); at != reasoning.npos) {
    reasoning.remove_prefix(at + begin.size());
  }
  return {strip(reasoning), without_newlines(content.substr(content.rfind(end) + end.size()))};
}

void write_calls(const std::vector<ToolCall>& calls, bool follows_text, Writer& out) {
  for (const ToolCall& call : calls) {
    if (&call == &calls.front()) {
      out.write(follows_text ? "\n\n" : "");
    } else {
      out.write("\n");
    }
    out.write("<tool_call>\n<function=");
    out.quote(call.name);
    out.write(">\n");
    for (const auto& [name, value] : call.arguments.items()) {
      out.write("<parameter=");
      out.quote(name);
      out.write(">\n");
      out.quote(value.is_structured() ? python_json(value) : python_str(value));
      out.write("\n</parameter>\n");
    }
    out.write("</function>\n</tool_call>");
  }
}

// Thoughts are shown only to the model that is still at work on the same question.
void write_assistant(const Message& message, bool shows_reasoning, Writer& out) {
  const auto [reasoning, content] = split_reasoning(message);
  out.write("<|im_start|>assistant\n");
  if (shows_reasoning) {
    out.write("<think>\n");
    out.quote(reasoning);
    out.write("\n</think>\n\n");
  }
  out.quote(content);
  write_calls(message.tool_calls, !strip(content).empty(), out);
}

// Results in a row are one turn of the user.
void write_result(const std::vector<Message>& messages, std::size_t n, Writer& out) {
  const auto is_tool = [&](std::size_t i) { return messages[i].role == Role::tool; };
  if (n > 0 && !is_tool(n - 1)) out.write("<|im_start|>user");
  out.write("\n<tool_response>\n");
  out.quote(strip(messages[n].content));
  out.write("\n</tool_response>");
  if (n + 1 == messages.size() || !is_tool(n + 1)) out.write("<|im_end|>\n");
}

Prompt render_qwen3_5(const ChatTemplate& form, const Chat& chat, Writer out) {
  const std::vector<Message>& messages = chat.messages;
  const std::size_t question = last_question(messages);
  const bool continues = messages.back().role == Role::assistant;
  if (continues && !messages.back().tool_calls.empty()) {
    fail("the last message calls a tool: a message with its result must follow");
  }
  write_system(chat, out);
  for (std::size_t n = 0; n < messages.size(); ++n) {
    const Message& message = messages[n];
    const bool is_open = continues && n + 1 == messages.size();
    if (message.role == Role::system && n > 0) {
      fail("message " + std::to_string(n + 1) + " is a system message: it can only be the first");
    } else if (message.role == Role::user) {
      out.write("<|im_start|>user\n");
      out.quote(strip(message.content));
      out.write("<|im_end|>\n");
    } else if (message.role == Role::assistant) {
      write_assistant(message, n > question, out);
      if (!is_open) out.write("<|im_end|>\n");
    } else if (message.role == Role::tool) {
      write_result(messages, n, out);
    }
  }
  if (continues) {
    const auto [reasoning, content] = split_reasoning(messages.back());
    return out.finish({Role::assistant, std::string(content), std::string(reasoning)}, false);
  }
  const bool thinking = chat.enable_thinking.value_or(form.thinks_by_default);
  out.write("<|im_start|>assistant\n");
  out.write(thinking ? "<think>\n" : "<think>\n\n</think>\n\n");
  return out.finish({Role::assistant, ""}, thinking);
}

}  // namespace

Prompt render(const ChatTemplate& form, const Tokenizer& tokenizer, const Chat& chat, int context) {
  if (chat.messages.empty()) fail("there are no messages");
  const Writer out(tokenizer, context);
  return form.form == ChatForm::qwen3_5 ? render_qwen3_5(form, chat, out)
                                        : render_chatml(form, chat, out);
}

}  // namespace qwen
