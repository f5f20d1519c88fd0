// What is said in a conversation, before any template writes it down.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "qwen/json.h"

namespace qwen {

enum class Role { system, user, assistant, tool };

// As templates and JSON files write them, in the order of the enumeration.
inline constexpr const char* role_names[] = {"system", "user", "assistant", "tool"};
inline std::string name_of(Role role) {
  return role_names[static_cast<int>(role)];
}

// The assistant asks for a function to be called; a message of a tool answers.
struct ToolCall {
  std::string name;
  OrderedJson arguments = OrderedJson::object();
};

struct Message {
  Role role = Role::user;
  std::string content;  // valid UTF-8
  // The assistant's: what it thought before it answered. Nothing: the content may hold it, between
  // <think> and </think>.
  std::optional<std::string> reasoning = std::nullopt;
  std::vector<ToolCall> tool_calls = {};
};

// A conversation, and what the model is told besides.
struct Chat {
  std::vector<Message> messages;
  std::vector<OrderedJson> tools;       // functions it may call, described as JSON
  std::optional<bool> enable_thinking;  // nothing: as the template has it
};

}  // namespace qwen
