// How a conversation is written down for a model: turns between markers.
//
//   <|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n
//
// A marker is one token, and only the template can write it. A content that spells one is text: the
// conversation is never tokenised as a whole, but marker by marker, and piece by piece between.
#pragma once

#include <climits>
#include <string>
#include <vector>

#include "qwen/message.h"
#include "qwen/tokenizer.h"

namespace qwen {

enum class ChatForm {
  chatml,   // role and content between markers, and nothing else
  qwen3_5,  // with tools and a think block, contents stripped
};

struct ChatTemplate {
  ChatForm form = ChatForm::chatml;
  std::string default_system;      // of chatml, where no system message comes first; empty: none
  bool thinks_by_default = false;  // of qwen3_5
};

// A conversation written down, up to where the assistant's next words belong.
struct Prompt {
  std::string text;
  std::vector<int> ids;
  std::vector<int> turns;  // where each turn begins in the ids; the last is the one to be written
  bool thinking = false;   // it ends within a think block
  Message begun = {Role::assistant, ""};  // what the turn to be written holds already

  // So many ids come before the turn that is to be written. They stay as they are, whatever the
  // answer: the next prompt begins with them.
  int history() const { return turns.empty() ? 0 : turns.back(); }
};

// The prompt for the next answer. Where the last message is the assistant's, that one is left open,
// to be continued. std::invalid_argument, one line, for what the template does not take: no
// messages, no question, a system message that is not the first, tools where it knows none; and for
// a text that is certainly more than `context` tokens (expect_room).
Prompt render(const ChatTemplate& form, const Tokenizer& tokenizer, const Chat& chat,
              int context = INT_MAX);

}  // namespace qwen
