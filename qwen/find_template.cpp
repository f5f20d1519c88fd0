#include "qwen/find_template.h"

#include <filesystem>
#include <optional>

#include "qwen/file.h"
#include "qwen/gguf_metadata.h"
#include "qwen/json.h"

namespace qwen {
namespace {

namespace fs = std::filesystem;

// tokenizer_config.json holds one template, or a list of them with names.
std::optional<std::string> from_tokenizer_config(const std::string& path) {
  const Json config = read_json(path);
  const Json all = config.is_object() ? config.value("chat_template", Json()) : Json();
  if (all.is_string()) return all.get<std::string>();
  for (const Json& one : all.is_array() ? all : Json::array()) {
    if (one.is_object() && one.value("name", "") == "default") return one.value("template", "");
  }
  return std::nullopt;
}

std::optional<std::string> template_text(const std::string& path) {
  const bool is_directory = fs::is_directory(path);
  if (!is_directory && fs::path(path).extension() == ".gguf") {
    return find_string(read_gguf(path), "tokenizer.chat_template");
  }
  const fs::path directory = is_directory ? fs::path(path) : fs::path(path).parent_path();
  const fs::path jinja = directory / "chat_template.jinja";
  if (fs::exists(jinja)) return std::string(text(*map_file(jinja.string())));
  const fs::path config = directory / "tokenizer_config.json";
  return fs::exists(config) ? from_tokenizer_config(config.string()) : std::nullopt;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

// The same template from the hands of many: spaces, line ends and kinds of quotes do not count.
std::string bare(std::string jinja) {
  for (const char* dropped : {" ", "\n", "-"}) replace_all(jinja, dropped, "");
  replace_all(jinja, "\"", "'");
  return jinja;
}

// Plain ChatML, with a system message of its own or without.
std::optional<ChatTemplate> as_chatml(std::string jinja) {
  replace_all(jinja, "\\n", "\n");
  ChatTemplate form;
  constexpr std::string_view before = "<|im_start|>system\n", after = "<|im_end|>";
  const std::size_t begin = jinja.find(before);
  if (begin != jinja.npos) {
    const std::size_t first = begin + before.size();
    const std::size_t end = std::min(jinja.find(after, first), jinja.size());
    form.default_system = jinja.substr(first, end - first);
    jinja.erase(first, end - first);
  }
  const std::string expected =
      std::string("{% for message in messages %}") +
      (form.default_system.empty() ? ""
                                   : "{% if loop.first and messages[0]['role'] != 'system' %}"
                                     "{{ '<|im_start|>system<|im_end|>' }}{% endif %}") +
      "{{ '<|im_start|>' + message['role'] + '' + message['content'] + '<|im_end|>' + '' }}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant' }}{% endif %}";
  if (bare(jinja) != bare(expected)) return std::nullopt;
  return form;
}

// The small ones of the family (0.8B and 2B) think only when asked to.
ChatTemplate qwen3_5(const std::string& jinja, const Config& config) {
  constexpr int hidden_size_of_4B = 2560;
  bool thinks = config.hidden_size >= hidden_size_of_4B;
  if (contains(jinja, "enable_thinking is true")) thinks = false;
  if (contains(jinja, "enable_thinking is false")) thinks = true;
  return {ChatForm::qwen3_5, "", thinks};
}

}  // namespace

FoundTemplate recognise_template(const std::string& jinja, const Config& config) {
  if (contains(jinja, "<function=example_function_name>") && contains(jinja, "enable_thinking")) {
    return {qwen3_5(jinja, config), {}};
  }
  if (const auto chatml = as_chatml(jinja)) return {*chatml, {}};
  return {ChatTemplate{},
          {"the model's chat template is neither Qwen3.5's nor plain ChatML; plain ChatML is "
           "used"}};
}

FoundTemplate find_template(const std::string& path, const Config& config) {
  if (const auto jinja = template_text(path)) return recognise_template(*jinja, config);
  if (config.model_type == "qwen3_5_text") return {qwen3_5("", config), {}};
  return {ChatTemplate{}, {"the model comes without a chat template; plain ChatML is used"}};
}

}  // namespace qwen
