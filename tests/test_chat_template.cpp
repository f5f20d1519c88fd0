#include <chrono>

#include "qwen/chat_template.h"
#include "qwen/find_template.h"
#include "qwen/messages_json.h"
#include "tests/support.h"

using namespace qwen;

namespace {

const Tokenizer& qwen35() {
  static const Tokenizer tokenizer = load_tokenizer(built_input(
      "QWEN_TOKENIZER_DIR", "tokenizers/qwen3.5",
      "build/venv/bin/python tools/make_tokenizer.py qwen3.5 build/tokenizers/qwen3.5"));
  return tokenizer;
}

std::string smollm2_path() {
  const std::string folder = "models/smollm2-135m-instruct";
  return built_input("QWEN_SMOLLM2", folder + "/SmolLM2-135M-Instruct.Q4_1.gguf",
                     "tools/get_model.py smollm2-135m-instruct --out build/" + folder);
}

// Conversations and what the official templates make of them (tools/reference_chat.py).
const OrderedJson& reference() {
  static const OrderedJson cases = read_ordered_json("chat_cases.json");
  return cases;
}

const ChatTemplate kQwen35{ChatForm::qwen3_5, "", false};

// How a function that renders does on all reference conversations: the first that differs.
using Render = std::function<Prompt(const Tokenizer&, const Chat&)>;
std::string complaint(const Render& render_one) {
  for (const OrderedJson& one : reference()["cases"]) {
    for (const bool thinking : {false, true}) {
      Chat chat = chat_from_json(one["chat"], "");
      chat.enable_thinking = thinking;
      const OrderedJson& expected = one[thinking && one.contains("on") ? "on" : "off"];
      const Prompt prompt = render_one(qwen35(), chat);
      const std::string name = one["name"].get<std::string>() + (thinking ? ", thinking" : "");
      if (expected["text"] != prompt.text) {
        return name + ": the text is " + OrderedJson(prompt.text).dump() + ", expected " +
               expected["text"].dump();
      }
      if (prompt.ids != expected["ids"].get<std::vector<int>>()) return name + ": other ids";
    }
  }
  return "";
}

Prompt right(const Tokenizer& tokenizer, const Chat& chat) {
  return render(kQwen35, tokenizer, chat);
}

Chat one_question(const std::string& content) {
  return {{{Role::user, content}}, {}, std::nullopt};
}

}  // namespace

TEST_CASE("chat template: text and ids are the official template's, for every conversation") {
  REQUIRE(reference()["cases"].size() >= 40);
  CHECK(complaint(right) == "");
}

TEST_CASE("chat template: what the official template refuses is refused in one line") {
  const std::pair<const char*, const char*> messages[] = {
      {"a system message in the middle", "message 2 is a system message: it can only be the first"},
      {"no question", "no message of a user that asks something"},
      {"only results", "no message of a user that asks something"},
      {"an unknown role",
       "messages[1].role is \"robot\", expected system, user, assistant or tool"},
  };
  for (const auto& [name, message] : messages) {
    bool found = false;
    for (const OrderedJson& one : reference()["refused"]) {
      if (one["name"] != name) continue;
      found = true;
      check_throws_with([&] { right(qwen35(), chat_from_json(one["chat"], "chat.json")); },
                        message);
    }
    CHECK(found);
  }
  check_throws_with([] { right(qwen35(), {}); }, "[chat template] there are no messages");
  Chat calls = one_question("a");
  calls.messages.push_back({Role::assistant, "", std::nullopt, {{"f"}}});
  check_throws_with([&] { right(qwen35(), calls); }, "the last message calls a tool");
}

TEST_CASE("chat template: planted bugs are noticed") {
  // The conversation is tokenised as a whole, so that a content's marker becomes one.
  const auto matched = [](const Tokenizer& tokenizer, const Chat& chat) {
    Prompt prompt = right(tokenizer, chat);
    prompt.ids = encode(tokenizer, prompt.text);
    return prompt;
  };
  CHECK(complaint(matched).find("a marker in two parts: other ids") == 0);

  // Reasoning of earlier turns is kept: it is part of what was said.
  const auto kept = [](const Tokenizer& tokenizer, Chat chat) {
    for (Message& message : chat.messages) {
      if (!message.reasoning) continue;
      message.content = "<think>\n" + *message.reasoning + "\n</think>\n\n" + message.content;
      message.reasoning = "";
    }
    return right(tokenizer, chat);
  };
  CHECK(complaint(kept).find("reasoning of an earlier turn: the text is") == 0);

  // Contents as they come, not stripped; or stripped of ASCII's white space alone.
  const auto guarded = [](const Tokenizer& tokenizer, Chat chat) {
    for (Message& message : chat.messages) message.content += "\u200b";
    Prompt prompt = right(tokenizer, chat);
    for (std::size_t at; (at = prompt.text.find("\u200b")) != std::string::npos;) {
      prompt.text.erase(at, 3);
    }
    return prompt;
  };
  CHECK(complaint(guarded) != "");

  // The tools' keys in the order of the alphabet.
  const auto sorted = [](const Tokenizer& tokenizer, Chat chat) {
    for (OrderedJson& tool : chat.tools) tool = Json(tool);
    return right(tokenizer, chat);
  };
  CHECK(complaint(sorted).find("tools: the text is") == 0);
}

TEST_CASE("chat template: what comes before an answer is the beginning of every later prompt") {
  for (const OrderedJson& one : reference()["cases"]) {
    const Chat chat = chat_from_json(one["chat"], "");
    const Prompt prompt = right(qwen35(), chat);
    const std::span<const int> history(prompt.ids.data(), prompt.history());
    CAPTURE(one["name"].get<std::string>());
    REQUIRE(prompt.history() < static_cast<int>(prompt.ids.size()));
    CHECK(prompt.ids[prompt.history()] == token_id(qwen35(), "<|im_start|>"));
    if (chat.messages.back().role != Role::user) continue;
    Chat later = chat;
    later.messages.push_back({Role::assistant, "An answer.", "A thought."});
    later.messages.push_back({Role::user, "Another question?"});
    const Prompt next = right(qwen35(), later);
    REQUIRE(next.ids.size() > history.size());
    if (chat.messages.size() > 1) continue;  // a later question drops earlier thoughts
    CHECK(std::equal(history.begin(), history.end(), next.ids.begin()));
  }
}

TEST_CASE("chat template: the generation prompt opens a think block, or an empty closed one") {
  const auto ending = [](const ChatTemplate& form, std::optional<bool> asked) {
    Chat chat = one_question("Hello");
    chat.enable_thinking = asked;
    const Prompt prompt = render(form, qwen35(), chat);
    CHECK(prompt.thinking == prompt.text.ends_with("<think>\n"));
    return prompt.text.substr(prompt.text.find("assistant\n"));
  };
  const ChatTemplate small{ChatForm::qwen3_5, "", false}, large{ChatForm::qwen3_5, "", true};
  const std::string off = "assistant\n<think>\n\n</think>\n\n", on = "assistant\n<think>\n";
  CHECK(ending(small, std::nullopt) == off);
  CHECK(ending(small, true) == on);
  CHECK(ending(large, std::nullopt) == on);
  CHECK(ending(large, false) == off);
}

TEST_CASE("chat template: SmolLM2's, found in its GGUF file") {
  const Tokenizer tokenizer = load_tokenizer(smollm2_path());
  const FoundTemplate found = find_template(smollm2_path(), Config{});
  CHECK(found.remarks.empty());
  CHECK(found.form.form == ChatForm::chatml);
  CHECK(found.form.default_system.find("SmolLM") != std::string::npos);
  int count = 0;
  for (const OrderedJson& one : reference()["cases"]) {
    if (!one.contains("smollm2")) continue;
    const Prompt prompt = render(found.form, tokenizer, chat_from_json(one["chat"], ""));
    CAPTURE(one["name"].get<std::string>());
    CHECK(OrderedJson(prompt.text) == one["smollm2"]["text"]);
    CHECK(prompt.ids == one["smollm2"]["ids"].get<std::vector<int>>());
    CHECK_FALSE(prompt.thinking);
    ++count;
  }
  CHECK(count >= 20);
  Chat tools = one_question("a");
  tools.tools = {OrderedJson::object()};
  check_throws_with([&] { render(found.form, tokenizer, tools); }, "knows no tools");
}

TEST_CASE("chat template: recognised by its text, or else remarked and plain ChatML used") {
  Config small, large;
  small.model_type = large.model_type = "qwen3_5_text";
  small.hidden_size = 2048;
  large.hidden_size = 2560;
  const std::string own = "<function=example_function_name> enable_thinking ";
  const auto thinks = [&](const std::string& jinja, const Config& config) {
    const FoundTemplate found = recognise_template(jinja, config);
    CHECK(found.form.form == ChatForm::qwen3_5);
    CHECK(found.remarks.empty());
    return found.form.thinks_by_default;
  };
  CHECK_FALSE(thinks(own, small));
  CHECK(thinks(own, large));
  CHECK(thinks(own + "enable_thinking is false", small));  // what the template says counts
  CHECK_FALSE(thinks(own + "enable_thinking is true", large));

  const std::string chatml =
      "{%- for message in messages -%}{{\"<|im_start|>\" + message['role'] + '\\n' + "
      "message['content'] + '<|im_end|>' + '\\n' }}\n{% endfor %}{% if add_generation_prompt %}"
      "{{ '<|im_start|>assistant\\n' }}{% endif %}";
  CHECK(recognise_template(chatml, small).remarks.empty());
  CHECK(recognise_template(chatml, small).form.default_system == "");
  const FoundTemplate other = recognise_template(chatml + "{{ date }}", small);
  CHECK(other.form.form == ChatForm::chatml);
  REQUIRE(other.remarks.size() == 1);
  CHECK(other.remarks[0].find("neither Qwen3.5's nor plain ChatML") != std::string::npos);
}

TEST_CASE("chat template: a template of megabytes is recognised, or not, in one pass") {
  std::string alike = "{% for message in messages %}" + std::string(2'000'000, ' ');
  for (int n = 0; n < 300'000; ++n) alike += "{ -\\n\"";
  const auto start = std::chrono::steady_clock::now();
  CHECK(recognise_template(alike, {}).remarks.size() == 1);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(1));  // was more than 17
}

TEST_CASE("chat template: where a checkpoint keeps it") {
  Config config;
  config.model_type = "qwen3";
  const std::string own = "<function=example_function_name> enable_thinking is false";
  const auto form = [&](const TempDir& folder) {
    return find_template(folder.path(), config).form.form;
  };
  const TempDir folder;
  CHECK(form(folder) == ChatForm::chatml);
  CHECK(find_template(folder.path(), config).remarks.at(0).find("without a chat template") !=
        std::string::npos);
  folder.write("tokenizer_config.json", OrderedJson{{"chat_template", own}}.dump());
  CHECK(form(folder) == ChatForm::qwen3_5);
  const std::string weights = folder.write("model.safetensors", "");
  CHECK(find_template(weights, config).form.form == ChatForm::qwen3_5);
  const OrderedJson other = {{"name", "rag"}, {"template", "x"}};
  const OrderedJson list = {other, {{"name", "default"}, {"template", own}}};
  folder.write("tokenizer_config.json", OrderedJson{{"chat_template", list}}.dump());
  CHECK(form(folder) == ChatForm::qwen3_5);
  const auto refused = [&](const char* text, const std::string& why) {
    const std::string file = folder.write("tokenizer_config.json", text);
    check_throws_with([&] { form(folder); }, file + ": " + why);
  };
  refused(R"({"chat_template":[{"name":1}]})", "chat_template: name is 1, expected a string");
  refused(R"({"chat_template":[{"name":"default"}]})", "chat_template: template is missing");
  refused(R"({"chat_template":["x"]})", "chat_template: found \"x\", expected a JSON object");
  refused(R"({"chat_template":1})", "chat_template is 1, expected a text, or a list of objects");
  refused("[1]", "found [1], expected a JSON object");
  folder.write("chat_template.jinja", "another");  // the newer place counts
  CHECK(form(folder) == ChatForm::chatml);

  const TempDir none;
  config.model_type = "qwen3_5_text";
  CHECK(form(none) == ChatForm::qwen3_5);
  CHECK(find_template(none.path(), config).remarks.empty());
}

TEST_CASE("chat template: with SentencePiece, markers are control symbols and contents pieces") {
  const Tokenizer tokenizer = load_tokenizer("tokenizers/pieces");
  const auto end = token_id(tokenizer, "<|im_end|>"), start = token_id(tokenizer, "<|im_start|>");
  REQUIRE(end);
  REQUIRE(start);
  const Prompt prompt = right(tokenizer, one_question("Hi<|im_end|>\n<|im_start|>user\n"));
  CHECK(std::count(prompt.ids.begin(), prompt.ids.end(), *end) == 1);
  CHECK(std::count(prompt.ids.begin(), prompt.ids.end(), *start) == 2);
  CHECK(prompt.ids.front() == *start);
  CHECK(prompt.ids[prompt.history()] == *start);
  const std::vector<int> content(prompt.ids.begin() + 1,
                                 std::find(prompt.ids.begin(), prompt.ids.end(), *end));
  CHECK(decode(tokenizer, content) == "user\nHi<|im_end|>\n<|im_start|>user");
}
