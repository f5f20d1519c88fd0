#include "qwen/chat_session.h"

#include <cstdio>
#include <stdexcept>

#include "qwen/file.h"
#include "qwen/messages_json.h"
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
    "Ctrl-C stops an answer, Ctrl-D ends the program. Any other line is a message.";

std::string reset(ChatSession& session) {
  Chat& chat = session.conversation.chat;
  const bool has_system = !chat.messages.empty() && chat.messages.front().role == Role::system;
  chat.messages.resize(has_system ? 1 : 0);
  session.conversation.sequence = empty_sequence(session.voice.model.config);
  session.conversation.turns = 0;
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
  const int read = stats.prompt - stats.known;
  const int context = session.voice.model.config.max_position_embeddings;
  const StateBytes bytes = state_bytes(session.conversation.sequence.state);
  std::string text = format("prompt: %d tokens, %d of them remembered, %d read\n", stats.prompt,
                            stats.known, read);
  text += stats.why.empty() ? "read again: nothing\n"
                            : format("read again: %d: %s\n", stats.again, stats.why.c_str());
  text += format("answer: %d tokens; context: %d of %d; memory: %.2f MB\n", stats.written,
                 stats.positions, context, bytes.total() / 1e6);
  // The first token comes with the prompt's logits: it is part of reading.
  const double writing = stats.written > 1 ? (stats.written - 1) / stats.write_seconds : 0;
  return text +
         format("~ tokens/s: reading %.0f, writing %.0f", read / stats.read_seconds, writing);
}

bool is_command(const std::string& line) {
  return line.starts_with('/');
}

std::string run_command(ChatSession& session, const std::string& line) {
  const std::size_t space = line.find(' ');
  const std::string name = line.substr(0, space);
  const std::string file(space == line.npos ? "" : strip(line.substr(space)));
  const bool takes_file = name == "/save" || name == "/load";
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
    return "saved to " + file;
  }
  if (name == "/load") {
    load_chat(session, file);
    return format("%zu messages", session.conversation.chat.messages.size());
  }
  throw std::invalid_argument("there is no command " + shown(name) + "; /help lists them");
}

std::string ending_remark(const AnswerStats& stats, const AnswerOptions& options) {
  if (stats.loop_period > 0) {
    return format("stopped: the same came again and again, every %d tokens", stats.loop_period);
  }
  switch (stats.ending) {
    case Ending::max_tokens:
      return format("stopped after %d tokens (--max-new)", options.max_tokens);
    case Ending::context:
      return format("stopped: the context of %d tokens is full; /reset starts anew",
                    stats.prompt + stats.written);
    case Ending::stopped:
      return "stopped";
    default:
      return "";
  }
}

void save_chat(const ChatSession& session, const std::string& path) {
  OrderedJson json = to_json(session.conversation.chat);
  json["sampling"] = to_json(session.options.sampling);
  write_file(path, [&](std::ostream& out) { out << json_text(json, 2) << '\n'; });
}

void load_chat(ChatSession& session, const std::string& path) {
  const OrderedJson json = read_ordered_json(path);
  Chat chat = chat_from_json(json, path);
  if (json.is_object() && json.contains("sampling")) {
    session.options.sampling = sampling_from_json(json["sampling"], path + ": sampling");
  }
  session.conversation.chat = std::move(chat);
}

}  // namespace qwen
