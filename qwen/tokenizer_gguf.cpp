#include "qwen/tokenizer_gguf.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "qwen/gguf_metadata.h"
#include "qwen/pretokenize.h"

namespace qwen {

namespace {

const std::string prefix = "tokenizer.ggml.";

// Values of tokenizer.ggml.token_type.
enum TokenType { control = 3, user_defined = 4, unused = 5 };

[[noreturn]] void fail(const Gguf& gguf, const std::string& key, const std::string& message) {
  throw std::runtime_error(gguf.path + ": " + prefix + key + " " + message);
}

std::vector<std::string> strings(const Gguf& gguf, const std::string& key) {
  auto list = find_strings(gguf, prefix + key);
  if (!list) fail(gguf, key, "is missing: the file has no tokenizer of this kind");
  return *std::move(list);
}

// The file names its way of cutting text and does not spell it out.
void set_patterns(const Gguf& gguf, TokenizerFiles& files) {
  struct Named {
    const char* name;
    std::vector<std::string> patterns;
    bool nfc, ignore_merges;
  };
  // What llama.cpp does with files that name nothing, older than the key.
  const std::vector<std::string> unnamed = {R"([\p{P}\$\+<=>\^~\|]+)", patterns::gpt2,
                                            patterns::number, "[0-9][0-9][0-9]"};
  const std::vector<std::string> digits = {patterns::digit, patterns::gpt2};
  const Named known[] = {{"qwen35", {patterns::qwen35}, true, false},
                         {"qwen2", {patterns::qwen2}, true, false},
                         {"deepseek-r1-qwen", {patterns::qwen2}, true, false},
                         {"smollm", digits, false, false},
                         {"starcoder", digits, false, false},
                         {"refact", digits, false, false},
                         {"gpt-2", {patterns::gpt2}, false, false},
                         {"llama-bpe", {patterns::llama3}, false, true},
                         {"default", unnamed, false, false}};
  const std::string pre = find_string(gguf, prefix + "pre").value_or("default");
  const auto found = std::find_if(std::begin(known), std::end(known),
                                  [&](const Named& named) { return named.name == pre; });
  if (found == std::end(known)) {
    std::string names;
    for (const Named& named : known) names += std::string(names.empty() ? "" : ", ") + named.name;
    fail(gguf, "pre", "is " + quoted(pre) + ", expected one of " + names);
  }
  files.patterns = found->patterns;
  files.nfc = found->nfc;
  files.ignore_merges = found->ignore_merges;
}

// Converters fill a vocabulary up to the number of rows of the head: those ids have no text.
bool is_filler(const std::string& token, std::size_t id) {
  return token == "[PAD" + std::to_string(id) + "]";
}

void read_tokens(const Gguf& gguf, TokenizerFiles& files) {
  files.tokens = strings(gguf, "tokens");
  if (files.tokens.size() > most_tokens) {
    fail(gguf, "tokens",
         "has " + std::to_string(files.tokens.size()) + " tokens, expected at most " +
             std::to_string(most_tokens));
  }
  const auto types = find_integers(gguf, prefix + "token_type");
  if (!types) fail(gguf, "token_type", "is missing");
  if (types->size() != files.tokens.size()) {
    fail(gguf, "token_type",
         "has " + std::to_string(types->size()) + " entries, expected " +
             std::to_string(files.tokens.size()) + ", one for each token");
  }
  for (std::size_t id = 0; id < files.tokens.size(); ++id) {
    const auto type = (*types)[id];
    if (type == unused || is_filler(files.tokens[id], id)) {
      files.tokens[id].clear();
    } else if (type == control || type == user_defined) {
      files.added.push_back(
          {.content = files.tokens[id], .id = static_cast<int>(id), .special = type == control});
    }
  }
}

// The token whose id stands under that key; empty where there is no such key.
std::string token_by_id(const Gguf& gguf, const std::string& key, const TokenizerFiles& files) {
  const auto id = find_integer(gguf, prefix + key);
  if (!id) return "";
  if (*id < 0 || *id >= static_cast<std::int64_t>(files.tokens.size())) {
    fail(gguf, key,
         "is " + std::to_string(*id) + ", expected an id below " +
             std::to_string(files.tokens.size()));
  }
  return files.tokens[*id];
}

}  // namespace

TokenizerFiles read_gguf_tokenizer(const Gguf& gguf) {
  TokenizerFiles files;
  files.source = gguf.path;
  const std::string model = find_string(gguf, prefix + "model").value_or("");
  if (model != "gpt2") {
    fail(gguf, "model",
         "is " + quoted(model) + ", expected \"gpt2\" (byte-level BPE); for a " +
             "SentencePiece model put its tokenizer.model beside the file");
  }
  read_tokens(gguf, files);
  for (const std::string& merge : strings(gguf, "merges")) {
    const std::size_t space = merge.find(' ', 1);
    if (merge.empty() || space == std::string::npos) {
      fail(gguf, "merges", "has the entry " + quoted(merge) + ", expected \"a b\"");
    }
    files.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  set_patterns(gguf, files);
  for (const char* key : {"eos_token_id", "eot_token_id"}) {
    const std::string token = token_by_id(gguf, key, files);
    if (!token.empty()) files.eos_tokens.push_back(token);
  }
  if (find_bool(gguf, prefix + "add_bos_token").value_or(false)) {
    files.bos_token = token_by_id(gguf, "bos_token_id", files);
  }
  return files;
}

}  // namespace qwen
