#include "qwen/find_template.h"

#include <optional>

#include "qwen/checkpoint_kind.h"
#include "qwen/file.h"
#include "qwen/gguf_metadata.h"
#include "qwen/json.h"

namespace qwen {
namespace {

// tokenizer_config.json holds one template, or a list of them with names.
std::optional<std::string> from_tokenizer_config(const std::string& path) {
  const Json value = read_json(path);
  const JsonObject config(value, path);
  if (!config.has("chat_template")) return std::nullopt;
  if (value["chat_template"].is_string()) return config.string("chat_template");
  if (!value["chat_template"].is_array()) {
    config.fail("chat_template", "a text, or a list of objects with name and template");
  }
  for (const Json& one : value["chat_template"]) {
    const JsonObject named(one, path + ": chat_template");
    if (named.string("name") == "default") return named.string("template");
  }
  return std::nullopt;
}

std::optional<std::string> template_text(const std::string& path) {
  if (checkpoint_kind(path) == CheckpointKind::gguf) {
    return find_string(read_gguf(path), "tokenizer.chat_template");
  }
  const std::string folder = checkpoint_folder(path);
  const std::string jinja = folder + "/chat_template.jinja";
  if (exists(jinja)) return std::string(text(*map_file(jinja)));
  const std::string config = folder + "/tokenizer_config.json";
  return exists(config) ? from_tokenizer_config(config) : std::nullopt;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

// "\n" as a template spells it, a backslash and a letter, is a line end.
std::string with_line_ends(std::string_view jinja) {
  std::string text;
  for (std::size_t at = 0; at < jinja.size(); ++at) {
    const bool is_spelled = jinja.substr(at).starts_with("\\n");
    text += is_spelled ? '\n' : jinja[at];
    if (is_spelled) ++at;
  }
  return text;
}

// The same template from the hands of many: spaces, line ends and kinds of quotes do not count.
std::string bare(std::string_view jinja) {
  std::string text;
  for (const char c : jinja) {
    if (c != ' ' && c != '\n' && c != '-') text += c == '"' ? '\'' : c;
  }
  return text;
}

// Plain ChatML, with a system message of its own or without.
std::optional<ChatTemplate> as_chatml(const std::string& template_text) {
  std::string jinja = with_line_ends(template_text);
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
