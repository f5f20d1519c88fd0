// What a user of the chat program has before him: a conversation, its settings, and commands.
#pragma once

#include <string>

#include "qwen/conversation.h"

namespace qwen {

struct ChatSession {
  Voice voice;
  AnswerOptions options;
  Conversation conversation;
  AnswerStats last;  // of the last answer
};

// Says something to the model, which answers. Returns what the user should know of how the answer
// ended; empty where the model ended it. What is not answered (it does not fit, or is stopped
// before a first token) is not part of the conversation. Throws as answer() does.
std::string say(ChatSession& session, const std::string& text, const OnText& on_text = {},
                const WantsToStop& wants_to_stop = {});

// Whether a line is for the program and not for the model: it begins with / and a whole word of
// ASCII letters. "/etc/hosts is missing" is a message.
bool is_command(const std::string& line);

// /help, /reset, /think, /save FILE, /load FILE, /stats. Returns what to tell the user.
// std::runtime_error or std::invalid_argument, one line, for what cannot be done.
std::string run_command(ChatSession& session, const std::string& line);

// What the last answer took: tokens read again and why, speed, context. Lines that begin with ~
// depend on the machine.
std::string describe(const AnswerStats& stats, const ChatSession& session);

// Why an answer ended, where the user should know.
std::string ending_remark(const AnswerStats& stats, const AnswerOptions& options);

// Messages and settings as JSON, and back. What follows in the conversation is the same, bit for
// bit, as if it had never been interrupted.
void save_chat(const ChatSession& session, const std::string& path);
void load_chat(ChatSession& session, const std::string& path);

}  // namespace qwen
