#include "qwen/messages_json.h"

#include <stdexcept>

namespace qwen {
namespace {

// A value, and the way to it: "chat.json: messages[2].tool_calls[0]".
struct Place {
  const OrderedJson& value;
  std::string path;

  [[noreturn]] void fail(const std::string& expected) const {
    const char* is = path.ends_with(": ") ? "found " : " is ";
    throw std::runtime_error(path + is + shown(value) + ", expected " + expected);
  }
  // The member of that name; null where there is none.
  Place operator[](const char* key) const {
    static const OrderedJson null;
    const auto found = value.find(key);
    const char* between = path.ends_with(": ") ? "" : ".";
    return {found == value.end() ? null : *found, path + between + key};
  }
  Place operator[](std::size_t n) const { return {value[n], path + "[" + std::to_string(n) + "]"}; }
  void expect_object() const {
    if (!value.is_object()) fail("an object");
  }
  std::string string() const {
    if (!value.is_string()) fail("a string");
    return value.get<std::string>();
  }
  // How many elements; null counts as an empty list.
  std::size_t list_size() const {
    if (!value.is_null() && !value.is_array()) fail("a list");
    return value.size();
  }
};

Role role_of(const Place& place) {
  const std::string name = place.string();
  for (const Role role : {Role::system, Role::user, Role::assistant, Role::tool}) {
    if (name_of(role) == name) return role;
  }
  place.fail("system, user, assistant or tool");
}

// A part of a content: text is all that a text model can read.
std::string part_text(const Place& part) {
  part.expect_object();
  const std::string type = part["type"].value.is_null() ? "text" : part["type"].string();
  if (type != "text" || part.value.contains("image") || part.value.contains("video")) {
    part.fail("a part of type \"text\"; images, video and sound are not supported");
  }
  return part["text"].string();
}

std::string content_of(const Place& place) {
  if (place.value.is_null()) return "";
  if (place.value.is_string()) return place.string();
  if (!place.value.is_array()) place.fail("a string, or a list of parts");
  std::string text;
  for (std::size_t n = 0; n < place.value.size(); ++n) text += part_text(place[n]);
  return text;
}

OrderedJson arguments_of(const Place& place) {
  OrderedJson arguments = place.value;
  if (place.value.is_null()) arguments = OrderedJson::object();
  if (place.value.is_string()) arguments = parse_ordered_json(place.string(), place.path);
  if (!arguments.is_object()) place.fail("an object, or the JSON text of one");
  return arguments;
}

ToolCall tool_call(const Place& place) {
  place.expect_object();
  const bool wrapped = place.value.contains("function");
  const Place call = wrapped ? place["function"] : place;
  call.expect_object();
  return {call["name"].string(), arguments_of(call["arguments"])};
}

Message message(const Place& place) {
  place.expect_object();
  Message message{role_of(place["role"]), content_of(place["content"])};
  if (message.role != Role::assistant) return message;
  const Place reasoning = place["reasoning_content"], calls = place["tool_calls"];
  if (!reasoning.value.is_null()) message.reasoning = reasoning.string();
  for (std::size_t n = 0; n < calls.list_size(); ++n) {
    message.tool_calls.push_back(tool_call(calls[n]));
  }
  return message;
}

OrderedJson to_json(const Message& message) {
  OrderedJson json = {{"role", name_of(message.role)}, {"content", message.content}};
  if (message.reasoning) json["reasoning_content"] = *message.reasoning;
  for (const ToolCall& call : message.tool_calls) {
    json["tool_calls"].push_back(
        {{"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return json;
}

}  // namespace

Chat chat_from_json(const OrderedJson& json, const std::string& source) {
  const OrderedJson whole = json.is_array() ? OrderedJson{{"messages", json}} : json;
  const Place place{whole, source + ": "};
  if (!whole.is_object()) place.fail("a list of messages, or an object with \"messages\"");
  const Place messages = place["messages"], tools = place["tools"];
  const Place thinking = place["enable_thinking"];
  Chat chat;
  if (!messages.value.is_array()) messages.fail("a list of messages");
  for (std::size_t n = 0; n < messages.value.size(); ++n) {
    chat.messages.push_back(message(messages[n]));
  }
  for (std::size_t n = 0; n < tools.list_size(); ++n) {
    tools[n].expect_object();
    chat.tools.push_back(tools[n].value);
  }
  if (!thinking.value.is_null()) {
    if (!thinking.value.is_boolean()) thinking.fail("true or false");
    chat.enable_thinking = thinking.value.get<bool>();
  }
  return chat;
}

OrderedJson to_json(const Chat& chat) {
  OrderedJson json = {{"messages", OrderedJson::array()}};
  for (const Message& message : chat.messages) json["messages"].push_back(to_json(message));
  if (!chat.tools.empty()) json["tools"] = chat.tools;
  if (chat.enable_thinking) json["enable_thinking"] = *chat.enable_thinking;
  return json;
}

}  // namespace qwen
