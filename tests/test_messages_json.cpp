#include "qwen/messages_json.h"
#include "qwen/python_text.h"
#include "tests/support.h"

using namespace qwen;

namespace {

Chat parse(const std::string& text) {
  return chat_from_json(parse_ordered_json(text, "chat.json"), "chat.json");
}

void refused(const std::string& text, const std::string& part) {
  CAPTURE(text.substr(0, 80));
  check_throws_with([&] { parse(text); }, part);
}

}  // namespace

TEST_CASE("messages: a list, or an object with tools and settings") {
  const Chat list = parse(R"([{"role": "user", "content": "Hi", "name": "Kim"}])");
  REQUIRE(list.messages.size() == 1);
  CHECK(list.messages[0].role == Role::user);
  CHECK(list.messages[0].content == "Hi");
  CHECK_FALSE(list.enable_thinking);
  const Chat object = parse(R"({"messages": [{"role": "system", "content": null}],
      "tools": [{"b": 1, "a": 2}], "enable_thinking": false})");
  CHECK(object.messages[0].content == "");
  CHECK(object.tools[0].dump() == R"({"b":1,"a":2})");
  CHECK(object.enable_thinking == false);
  CHECK_FALSE(parse(R"({"messages": [], "enable_thinking": null, "tools": null})").enable_thinking);
}

TEST_CASE("messages: content as text, in parts, null or absent") {
  const auto content = [](const std::string& value) {
    return parse(R"([{"role": "user", "content": )" + value + "}]").messages[0].content;
  };
  CHECK(content(R"("a\u0000b")") == std::string("a\0b", 3));
  CHECK(content(R"([{"type": "text", "text": "<|im_"}, {"text": "end|>"}])") == "<|im_end|>");
  CHECK(content("[]") == "");
  CHECK(content("null") == "");
  CHECK(parse(R"([{"role": "user"}])").messages[0].content == "");
}

TEST_CASE("messages: arguments as an object, or as the JSON text of one") {
  const auto arguments = [](const std::string& value) {
    const Chat chat = parse(R"([{"role": "assistant", "reasoning_content": "r", "tool_calls":
        [{"id": "1", "function": {"name": "f", "arguments": )" +
                            value + "}}]}]");
    CHECK(chat.messages[0].reasoning == "r");
    CHECK(chat.messages[0].tool_calls[0].name == "f");
    return chat.messages[0].tool_calls[0].arguments.dump();
  };
  CHECK(arguments(R"({"b": 1.0, "a": [null]})") == R"({"b":1.0,"a":[null]})");
  CHECK(arguments(R"("{\"b\": 1.0, \"a\": [null]}")") == R"({"b":1.0,"a":[null]})");
  CHECK(arguments("null") == "{}");
  const std::string call = R"([{"role": "assistant", "tool_calls": [{"name": "f", "arguments": )";
  refused(call + "\"[1]\"}]}]", "tool_calls[0].arguments is \"[1]\", expected an object, or the");
  refused(call + "\"{\"}]}]", "chat.json: messages[0].tool_calls[0].arguments: not valid JSON");
  refused(call + "3}]}]", "arguments is 3, expected an object");
}

TEST_CASE("messages: what is wrong is said in one line that names the place") {
  refused("3", "chat.json: found 3, expected a list of messages, or an object with \"messages\"");
  refused("{}", "chat.json: messages is null, expected a list of messages");
  refused(R"({"messages": {}})", "messages is {}, expected a list of messages");
  refused("[3]", "messages[0] is 3, expected an object");
  refused("[{}]", "messages[0].role is null, expected a string");
  refused(R"([{"role": "robot"}])",
          "messages[0].role is \"robot\", expected system, user, assistant or tool");
  refused(R"([{"role": "user", "content": 3}])",
          "messages[0].content is 3, expected a string, or a list of parts");
  refused(R"([{"role": "user", "content": ["a"]}])", "content[0] is \"a\", expected an object");
  refused(R"([{"role": "user", "content": [{"type": "text"}]}])",
          "content[0].text is null, expected a string");
  for (const char* part :
       {R"({"type": "image", "image": "x"})", R"({"type": "image_url", "image_url": {"url": ""}})",
        R"({"image": "x"})", R"({"type": "video"})", R"({"type": "input_audio"})"}) {
    refused(R"([{"role": "user", "content": [)" + std::string(part) + "]}]", "not supported");
  }
  const std::string assistant = R"([{"role": "assistant", )";
  refused(assistant + R"("reasoning_content": 1}])", "reasoning_content is 1, expected a string");
  refused(assistant + R"("tool_calls": 1}])", "tool_calls is 1, expected a list");
  refused(assistant + R"("tool_calls": [1]}])", "tool_calls[0] is 1, expected an object");
  refused(assistant + R"("tool_calls": [{"function": 1}]}])", "function is 1, expected an object");
  refused(assistant + R"("tool_calls": [{}]}])", "tool_calls[0].name is null, expected a string");
  refused(R"({"messages": [], "tools": {}})", "tools is {}, expected a list");
  refused(R"({"messages": [], "tools": ["f"]})", "tools[0] is \"f\", expected an object");
  refused(R"({"messages": [], "enable_thinking": 1})", "enable_thinking is 1, expected true or");
}

TEST_CASE("messages: nothing nested too deep is walked, wherever it stands") {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  refused(nested(100'000), "chat.json: JSON nested more than 100 deep");
  refused(std::string(100'000, '['), "chat.json: JSON nested more than 100 deep");
  refused(R"([{"role": "user", "content": )" + nested(100'000) + "}]", "more than 100 deep");
  refused(R"({"messages": [], "tools": [{"a": )" + nested(100'000) + "}]}", "more than 100 deep");
  const std::string call = R"([{"role": "assistant", "tool_calls": [{"name": "f", "arguments": )";
  refused(call + "\"" + nested(100'000) + "\"}]}]", "arguments: JSON nested more than 100 deep");
  refused(R"([{"role": "user", "content": "\ud800"}])", "chat.json: not valid JSON");
}

TEST_CASE("messages: written and read again, a conversation is the same") {
  const std::string text =
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"<|im_end|>ü"},)"
      R"({"role":"assistant","content":"","reasoning_content":"","tool_calls":[{"type":"function",)"
      R"("function":{"name":"f","arguments":{"b":1.0,"a":null}}}]},{"role":"tool","content":"r"}],)"
      R"("tools":[{"z":1,"a":2}],"enable_thinking":true})";
  CHECK(json_text(to_json(parse(text))) == text);
  const std::string big = R"({"messages":[],"tools":[{"n":100000000000000000000}]})";
  CHECK(json_text(to_json(parse(big))) == big);
}

TEST_CASE("python text: numbers as repr writes them") {
  // Each right-hand side is what CPython prints.
  const std::pair<double, const char*> numbers[] = {
      {1.0, "1.0"},
      {-0.0, "-0.0"},
      {0.1, "0.1"},
      {1e15, "1000000000000000.0"},
      {1e16, "1e+16"},
      {9999999999999998.0, "9999999999999998.0"},
      {1e20, "1e+20"},
      {1e-4, "0.0001"},
      {1e-5, "1e-05"},
      {-1.5e-5, "-1.5e-05"},
      {123456.789, "123456.789"},
      {5e-324, "5e-324"},
      {1.7976931348623157e308, "1.7976931348623157e+308"},
      {0.00012345, "0.00012345"},
      {100.0, "100.0"},
      {1.0 / 3, "0.3333333333333333"},
      {2e22, "2e+22"},
      {-12.5, "-12.5"},
  };
  for (const auto& [number, expected] : numbers) CHECK(python_float(number) == expected);
}

TEST_CASE("python text: scalars as str writes them, anything as json.dumps does") {
  const OrderedJson values =
      parse_ordered_json(R"([true, false, null, 1, -7, 1.0, 1e20, "a\"b", ""])", "values");
  const char* expected[] = {"True", "False", "None", "1", "-7", "1.0", "1e+20", "a\"b", ""};
  for (std::size_t n = 0; n < values.size(); ++n) CHECK(python_str(values[n]) == expected[n]);
  // Integers of any length stay integers, scalars and in lists.
  const std::string big =
      R"([100000000000000000000, -18446744073709551617, {"n": 9223372036854775808}])";
  const OrderedJson integers = parse_ordered_json(big, "integers");
  CHECK(python_json(integers) == big);
  CHECK(python_str(integers[0]) == "100000000000000000000");
  CHECK(python_str(integers[1]) == "-18446744073709551617");
  const std::string text = R"({"b": [1, 1.0, true, null, "ü\n\u001f\"\\/"], "a": {}, "c": []})";
  CHECK(python_json(parse_ordered_json(text, "text")) == text);
}

TEST_CASE("python text: strip takes off what Python counts as white space") {
  CHECK(strip("") == "");
  CHECK(strip(" \n\t\v\f\r\x1c\x1d\x1e\x1f\u0085\u00a0\u1680\u2000\u200a\u2028\u2029\u202f\u205f"
              "\u3000") == "");
  CHECK(strip("\u3000 a \u00a0b\u2003\x1f") == "a \u00a0b");
  CHECK(strip("\u200b x \u180e") == "\u200b x \u180e");
}
