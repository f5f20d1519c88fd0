#include "qwen/chat_session.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <stdexcept>

#include "qwen/counted.h"
#include "qwen/file.h"
#include "qwen/messages_json.h"
#include "qwen/printable.h"
#include "qwen/python_text.h"
#include "qwen/sampling_json.h"

namespace qwen {
namespace {

constexpr const char* kHelp =
    "/reset       forgets the conversation, but for a system message\n"
    "/think       lets the model think before it answers, or no longer\n"
    "/save FILE   writes messages and settings as JSON\n"
    "/load FILE   goes on with a conversation that was saved\n"
    "/stats       what the last answer took: tokens read again, speed, context\n"
    "Ctrl-C stops an answer, Ctrl-D ends the program. Any line is a message that does not begin "
    "with\n"
    "a / and a word of letters alone.";

std::string reset(ChatSession& session) {
  Chat& chat = session.conversation.chat;
  const bool has_system = !chat.messages.empty() && chat.messages.front().role == Role::system;
  chat.messages.resize(has_system ? 1 : 0);
  session.conversation.sequence = empty_sequence(session.voice.model.config);
  session.conversation.is_loaded = false;
  session.last = {};
  return "the conversation is empty";
}

std::string think(ChatSession& session) {
  if (session.voice.form.form != ChatForm::qwen3_5) {
    throw std::invalid_argument("this model's chat template knows no thinking");
  }
  auto& thinking = session.conversation.chat.enable_thinking;
  thinking = !thinking.value_or(session.voice.form.thinks_by_default);
  return *thinking ? "the model thinks before it answers" : "the model answers at once";
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::string_view first_word(std::string_view line) {
  return line.substr(0, line.find_first_of(" \t"));
}

double per_second(int tokens, double seconds) {
  return tokens > 0 && seconds > 0 ? tokens / seconds : 0;
}

template <class... Values>
std::string format(const char* pattern, Values... values) {
  std::string text(std::snprintf(nullptr, 0, pattern, values...), '\0');
  std::snprintf(text.data(), text.size() + 1, pattern, values...);
  return text;
}

}  // namespace

std::string say(ChatSession& session, const std::string& text, const OnText& on_text,
                const WantsToStop& wants_to_stop) {
  std::vector<Message>& messages = session.conversation.chat.messages;
  const std::size_t count = messages.size();
  messages.push_back({Role::user, text});
  try {
    session.last =
        answer(session.voice, session.conversation, session.options, on_text, wants_to_stop);
  } catch (const std::invalid_argument&) {
    messages.resize(count);
    throw;
  }
  if (messages.size() == count + 1) messages.resize(count);  // given up
  return ending_remark(session.last, session.options);
}

std::string describe(const AnswerStats& stats, const ChatSession& session) {
  if (stats.prompt == 0) return "nothing has been answered yet";
  const bool given_up = stats.read < stats.prompt - stats.known;
  const int context = session.voice.model.config.max_position_embeddings;
  const StateBytes bytes = state_bytes(session.conversation.sequence.state);
  std::string text = format("prompt: %s, %d of them remembered, %d read%s\n",
                            counted(stats.prompt, "token").c_str(), stats.known, stats.read,
                            given_up ? " until that was stopped" : "");
  text += stats.why.empty() ? "read again: nothing\n"
                            : format("read again: %d: %s\n", stats.again, stats.why.c_str());
  text += format("answer: %s; context: %d of %d; memory: %.2f MB\n",
                 counted(stats.written, "token").c_str(), stats.positions, context,
                 bytes.total() / 1e6);
  // The first token comes with the prompt's logits: it is part of reading.
  return text + format("~ tokens/s: reading %.0f, writing %.0f",
                       per_second(stats.read, stats.read_seconds),
                       per_second(stats.written - 1, stats.write_seconds));
}

bool is_command(const std::string& line) {
  const std::string_view word = first_word(line);
  return word.size() > 1 && word[0] == '/' && std::all_of(word.begin() + 1, word.end(), is_letter);
}

std::string run_command(ChatSession& session, const std::string& line) {
  const std::string name(first_word(line));
  const std::string rest = line.substr(name.size()), file(strip(rest));
  const bool takes_file = name == "/save" || name == "/load";
  constexpr std::array kOthers = {"/help", "/reset", "/think", "/stats"};
  if (!takes_file && std::find(kOthers.begin(), kOthers.end(), name) == kOthers.end()) {
    throw std::invalid_argument("there is no command " + shown(name) + "; /help lists them");
  }
  if (takes_file && file.empty()) throw std::invalid_argument(name + " needs the name of a file");
  if (!takes_file && !file.empty()) {
    throw std::invalid_argument(name + " takes nothing after it, found " + shown(file));
  }
  if (name == "/help") return kHelp;
  if (name == "/reset") return reset(session);
  if (name == "/think") return think(session);
  if (name == "/stats") return describe(session.last, session);
  if (name == "/save") {
    save_chat(session, file);
    return "saved to " + on_one_line(file);
  }
  load_chat(session, file);
  return counted(session.conversation.chat.messages.size(), "message");
}

std::string ending_remark(const AnswerStats& stats, const AnswerOptions& options) {
  if (stats.loop_period > 0) {
    return "stopped: the same came again and again, every " + counted(stats.loop_period, "token");
  }
  switch (stats.ending) {
    case Ending::max_tokens:
      return "stopped after " + counted(options.max_tokens, "token") + " (--max-new)";
    case Ending::context:
      return "stopped: the context of " + counted(stats.prompt + stats.written, "token") +
             " is full; /reset starts anew";
    case Ending::stopped:
      return "stopped";
    default:
      return "";
  }
}

void save_chat(const ChatSession& session, const std::string& path) {
  OrderedJson json = to_json(session.conversation.chat);
  json["sampling"] = to_json(session.options.sampling);
  write_file(path, [&](std::ostream& out) { out << file_text(json); });
}

void load_chat(ChatSession& session, const std::string& path) {
  const OrderedJson json = read_ordered_json(path);
  Chat chat = chat_from_json(json, path);
  if (json.is_object() && json.contains("sampling")) {
    session.options.sampling = sampling_from_json(json["sampling"], path + ": sampling");
  }
  session.conversation.chat = std::move(chat);
  session.conversation.is_loaded = true;
}

}  // namespace qwen
