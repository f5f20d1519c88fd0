// Conversations as JSON, in the form that chat programs and servers exchange:
//
//   {"messages": [{"role": "user", "content": "…"}, …], "tools": […], "enable_thinking": true}
//
// or the list of messages alone.
#pragma once

#include <string>

#include "qwen/message.h"

namespace qwen {

// `source` is the file or whatever else messages should name. Content may be a text, a list of
// parts (their texts are joined), null or absent; a call's arguments may be an object or the JSON
// text of one. Keys that mean nothing here are passed over. std::runtime_error, one line.
Chat chat_from_json(const OrderedJson& json, const std::string& source);

// The same conversation again.
OrderedJson to_json(const Chat& chat);

}  // namespace qwen
