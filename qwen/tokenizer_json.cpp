#include "qwen/tokenizer_json.h"

#include <stdexcept>
#include <string_view>

#include "qwen/file.h"
#include "qwen/json.h"
#include "qwen/pretokenize.h"

namespace qwen {

namespace {

bool is_true(const JsonObject& object, const std::string& key) {
  return object.has(key) && object.boolean(key);
}

std::string string_or_empty(const JsonObject& object, const std::string& key) {
  return object.has(key) ? object.string(key) : "";
}

// The member of that name where `value` is an object that has it as a string; "" otherwise.
std::string text_at(const Json& value, const char* key) {
  const auto found = value.find(key);
  return found != value.end() && found->is_string() ? found->get<std::string>() : "";
}

// A token as tokenizer_config.json names it: its text, or an object with the text as `content`.
std::string named_token(const Json& config, const char* key) {
  const auto token = config.find(key);
  if (token == config.end()) return "";
  return token->is_object() ? text_at(*token, "content") : text_at(config, key);
}

Json read_if_there(const std::string& path) {
  return exists(path) ? read_json(path) : Json::object();
}

// ---- parts of both forms ----

void read_vocabulary(const Json& vocab, TokenizerFiles& files) {
  for (const auto& [token, id] : vocab.items()) {
    const bool fits = id.is_number_integer() && id >= 0 && id < most_tokens;
    if (!fits) {
      throw std::runtime_error(files.source + ": the id of " + shown(token) + " is " + shown(id) +
                               ", expected an integer from 0 to " +
                               std::to_string(most_tokens - 1));
    }
    const auto n = id.get<std::size_t>();
    if (n >= files.tokens.size()) files.tokens.resize(n + 1);
    if (!files.tokens[n].empty()) {
      throw std::runtime_error(files.source + ": " + shown(files.tokens[n]) + " and " +
                               shown(token) + " have the same id " + std::to_string(n));
    }
    files.tokens[n] = token;
  }
}

// The two halves of a merge written as "a b".
std::pair<std::string, std::string> halves(const std::string& merge, const std::string& source) {
  const std::size_t space = merge.find(' ');
  const bool two = space != std::string::npos && space > 0 && space + 1 < merge.size() &&
                   merge.find(' ', space + 1) == std::string::npos;
  if (!two) {
    throw std::runtime_error(source + ": a merge is " + shown(merge) +
                             ", expected two tokens with one space between them");
  }
  return {merge.substr(0, space), merge.substr(space + 1)};
}

AddedToken added_token(const JsonObject& object, int id) {
  return {.content = object.string("content"),
          .id = id,
          .special = is_true(object, "special"),
          .single_word = is_true(object, "single_word"),
          .lstrip = is_true(object, "lstrip"),
          .rstrip = is_true(object, "rstrip"),
          .normalized = is_true(object, "normalized")};
}

// ---- tokenizer.json ----

void read_model(const JsonObject& model, TokenizerFiles& files) {
  const std::string type = string_or_empty(model, "type");
  if (!type.empty() && type != "BPE") model.fail("type", "\"BPE\", the only kind read here");
  if (is_true(model, "byte_fallback")) {
    model.fail("byte_fallback", "false; put the model's tokenizer.model beside it");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!string_or_empty(model, key).empty()) model.fail(key, "nothing");
  }
  files.ignore_merges = is_true(model, "ignore_merges");
  files.unk_token = string_or_empty(model, "unk_token");
  files.fuse_unk = is_true(model, "fuse_unk");
  model.object("vocab");
  for (const Json& merge : model.array("merges")) {
    const bool pair =
        merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
    if (!pair && !merge.is_string()) {
      throw std::runtime_error(files.source + ": a merge is " + shown(merge) +
                               ", expected \"a b\" or [\"a\", \"b\"]");
    }
    files.merges.push_back(pair
                               ? std::pair{merge[0].get<std::string>(), merge[1].get<std::string>()}
                               : halves(merge.get<std::string>(), files.source));
  }
}

void read_normalizer(const JsonObject& normalizer, TokenizerFiles& files) {
  const std::string type = normalizer.string("type");
  if (type == "Sequence") {
    for (const Json& step : normalizer.array("normalizers")) {
      read_normalizer(JsonObject(step, normalizer.source()), files);
    }
  } else if (type == "NFC") {
    files.nfc = true;
  } else {
    normalizer.fail("type", "\"NFC\", the only normalizer read here");
  }
}

// Returns whether the words become bytes at the end, which is what makes a BPE byte-level.
bool read_pre_tokenizer(const JsonObject& step, TokenizerFiles& files) {
  const std::string type = step.string("type");
  if (type == "Sequence") {
    bool byte_level = false;
    for (const Json& inner : step.array("pretokenizers")) {
      byte_level |= read_pre_tokenizer(JsonObject(inner, step.source()), files);
    }
    return byte_level;
  }
  if (type == "ByteLevel") {
    if (is_true(step, "add_prefix_space")) step.fail("add_prefix_space", "false");
    // Absent means true: old files do not have the key.
    if (!step.has("use_regex") || step.boolean("use_regex")) {
      files.patterns.push_back(patterns::gpt2);
    }
    return true;
  }
  if (type == "Digits") {
    files.patterns.push_back(is_true(step, "individual_digits") ? patterns::digit
                                                                : patterns::number);
  } else if (type == "Split") {
    if (step.string("behavior") != "Isolated") step.fail("behavior", "\"Isolated\"");
    const JsonObject pattern = step.object("pattern");
    files.patterns.push_back(pattern.has("Regex") ? pattern.string("Regex")
                                                  : literal_pattern(pattern.string("String")));
  } else {
    step.fail("type", "\"Sequence\", \"Split\", \"Digits\" or \"ByteLevel\"");
  }
  return false;
}

// A text starts with a special token where the template for a single text does.
void read_post_processor(const Json& step, TokenizerFiles& files) {
  if (text_at(step, "type") == "Sequence" && step.contains("processors")) {
    for (const Json& inner : step["processors"]) read_post_processor(inner, files);
  }
  if (text_at(step, "type") != "TemplateProcessing") return;
  const auto single = step.find("single");
  if (single == step.end() || !single->is_array() || single->empty()) return;
  const auto first = single->front().find("SpecialToken");
  if (first != single->front().end()) files.bos_token = text_at(*first, "id");
}

// ---- vocab.json and merges.txt ----

std::vector<std::pair<std::string, std::string>> read_merges(const std::string& path) {
  const auto file = map_file(path);
  std::vector<std::pair<std::string, std::string>> merges;
  for (std::string_view rest = text(*file); !rest.empty();) {
    const std::size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    // Only "#version" is a comment: "# #" is a merge.
    if (line.empty() || line.starts_with("#version")) continue;
    merges.push_back(halves(std::string(line), path));
  }
  return merges;
}

// How text is cut, by the name of the tokenizer's class or of the model's type.
void set_family(const std::string& name, TokenizerFiles& files) {
  const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
  const bool is_qwen35 = is("Qwen3_5") || is("qwen3_5");
  files.nfc = is("Qwen") || is("qwen");
  files.patterns = {is_qwen35 ? patterns::qwen35 : files.nfc ? patterns::qwen2 : patterns::gpt2};
  if (!files.nfc && !is("GPT2") && !is("gpt2")) {
    files.remarks.push_back(files.source + ": no tokenizer_class or model_type known here stands " +
                            "beside it; text is cut as GPT-2 does it");
  }
}

void read_added_tokens_decoder(const Json& config, const std::string& source,
                               TokenizerFiles& files) {
  const JsonObject object(config, source);
  if (!object.has("added_tokens_decoder")) return;
  for (const auto& [key, token] : object.object("added_tokens_decoder").value().items()) {
    const bool is_number =
        !key.empty() && key.size() <= 8 && key.find_first_not_of("0123456789") == std::string::npos;
    const int id = is_number ? std::stoi(key) : most_tokens;
    if (id >= most_tokens) {
      throw std::runtime_error(source + ": added_tokens_decoder has the id " + shown(key) +
                               ", expected 0 to " + std::to_string(most_tokens - 1));
    }
    files.added.push_back(added_token(JsonObject(token, source), id));
  }
}

}  // namespace

TokenizerFiles read_tokenizer_json(const std::string& directory) {
  TokenizerFiles files;
  files.source = directory + "/tokenizer.json";
  const Json json = read_json(files.source);
  const JsonObject root(json, files.source);
  const JsonObject model = root.object("model");
  read_model(model, files);
  read_vocabulary(json["model"]["vocab"], files);
  if (root.has("added_tokens")) {
    for (const Json& token : root.array("added_tokens")) {
      const JsonObject object(token, files.source);
      const auto id = object.integer("id", 0, most_tokens - 1);
      files.added.push_back(added_token(object, static_cast<int>(id)));
    }
  }
  if (root.has("normalizer")) read_normalizer(root.object("normalizer"), files);
  const bool byte_level =
      root.has("pre_tokenizer") && read_pre_tokenizer(root.object("pre_tokenizer"), files);
  if (!byte_level) root.fail("pre_tokenizer", "one that ends with ByteLevel");
  if (root.has("post_processor")) read_post_processor(json["post_processor"], files);
  read_tokenizer_config(directory, files);
  return files;
}

TokenizerFiles read_vocab_and_merges(const std::string& directory) {
  TokenizerFiles files;
  files.source = directory + "/vocab.json";
  const Json vocab = read_json(files.source);
  JsonObject(vocab, files.source);
  read_vocabulary(vocab, files);
  files.merges = read_merges(directory + "/merges.txt");

  const std::string config_path = directory + "/tokenizer_config.json";
  const Json config = read_if_there(config_path);
  read_added_tokens_decoder(config, config_path, files);
  const std::string tokenizer_class = text_at(config, "tokenizer_class");
  const std::string model_type = text_at(read_if_there(directory + "/config.json"), "model_type");
  const bool says_nothing =
      tokenizer_class.empty() || tokenizer_class.starts_with("PreTrainedTokenizer");
  set_family(says_nothing ? model_type : tokenizer_class, files);
  read_tokenizer_config(directory, files);
  return files;
}

void read_tokenizer_config(const std::string& directory, TokenizerFiles& files) {
  const Json config = read_if_there(directory + "/tokenizer_config.json");
  const std::string eos = named_token(config, "eos_token");
  if (!eos.empty()) files.eos_tokens.push_back(eos);
  const auto add_bos = config.find("add_bos_token");
  // Tokenizers of Llama's class add it unless told otherwise.
  const bool adds = add_bos != config.end()
                        ? *add_bos == true
                        : text_at(config, "tokenizer_class").starts_with("Llama");
  if (adds) files.bos_token = named_token(config, "bos_token");
}

bool describes_sentencepiece(const std::string& directory) {
  const Json json = read_json(directory + "/tokenizer.json");
  const auto model = json.find("model");
  if (model == json.end()) return false;
  const auto byte_fallback = model->find("byte_fallback");
  return text_at(*model, "type") == "Unigram" ||
         (byte_fallback != model->end() && *byte_fallback == true);
}

}  // namespace qwen
