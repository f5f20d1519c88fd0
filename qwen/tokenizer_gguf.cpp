#include "qwen/tokenizer_gguf.h"

#include <stdexcept>

#include "qwen/gguf_metadata.h"
#include "qwen/pretokenize.h"
#include "qwen/printable.h"

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

// A way of cutting text, which the file names and does not spell out.
struct PreTokenizer {
  const char* name;
  std::vector<std::string> patterns;
  bool nfc = false;
  bool ignore_merges = false;
  bool adds_bos = false;  // where the file does not say
};

PreTokenizer pre_tokenizer(const Gguf& gguf) {
  // What llama.cpp does with files that name nothing, older than the key.
  const std::vector<std::string> unnamed = {R"([\p{P}\$\+<=>\^~\|]+)", patterns::gpt2,
                                            patterns::number, "[0-9][0-9][0-9]"};
  const std::vector<std::string> digits = {patterns::digit, patterns::gpt2};
  const PreTokenizer known[] = {
      {.name = "qwen35", .patterns = {patterns::qwen35}, .nfc = true},
      {.name = "qwen2", .patterns = {patterns::qwen2}, .nfc = true},
      {.name = "deepseek-r1-qwen", .patterns = {patterns::qwen2}, .nfc = true},
      {.name = "smollm", .patterns = digits},
      {.name = "starcoder", .patterns = digits},
      {.name = "refact", .patterns = digits},
      {.name = "gpt-2", .patterns = {patterns::gpt2}},
      {.name = "llama-bpe",
       .patterns = {patterns::llama3},
       .ignore_merges = true,
       .adds_bos = true},
      {.name = "default", .patterns = unnamed}};
  const std::string pre = find_string(gguf, prefix + "pre").value_or("default");
  std::string names;
  for (const PreTokenizer& one : known) {
    if (one.name == pre) return one;
    names += std::string(names.empty() ? "" : ", ") + one.name;
  }
  fail(gguf, "pre", "is " + in_quotes(pre) + ", expected one of " + names);
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

void read_ends(const Gguf& gguf, bool adds_bos, TokenizerFiles& files) {
  for (const char* key : {"eos_token_id", "eot_token_id"}) {
    const std::string token = token_by_id(gguf, key, files);
    if (!token.empty()) files.eos_tokens.push_back(token);
  }
  if (find_bool(gguf, prefix + "add_bos_token").value_or(adds_bos)) {
    files.bos_token = token_by_id(gguf, "bos_token_id", files);
  }
}

}  // namespace

bool is_sentencepiece(const Gguf& gguf) {
  return find_string(gguf, prefix + "model") == "llama";
}

TokenizerFiles read_gguf_pieces(const Gguf& gguf) {
  TokenizerFiles files;
  files.source = gguf.path;
  if (!gguf.metadata.contains(prefix + "tokens")) return files;
  read_tokens(gguf, files);
  read_ends(gguf, true, files);
  return files;
}

TokenizerFiles read_gguf_tokenizer(const Gguf& gguf) {
  TokenizerFiles files;
  files.source = gguf.path;
  const std::string model = find_string(gguf, prefix + "model").value_or("");
  if (is_sentencepiece(gguf)) {
    fail(gguf, "model",
         "is \"llama\" (SentencePiece), of which the file has only the pieces; put the model's own "
         "tokenizer.model beside the file");
  }
  if (model != "gpt2") {
    fail(gguf, "model",
         "is " + in_quotes(model) + ", expected \"gpt2\" (byte-level BPE) or \"llama\"");
  }
  read_tokens(gguf, files);
  for (const std::string& merge : strings(gguf, "merges")) {
    const std::size_t space = merge.find(' ', 1);
    if (merge.empty() || space == std::string::npos) {
      fail(gguf, "merges", "has the entry " + in_quotes(merge) + ", expected \"a b\"");
    }
    files.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  const PreTokenizer pre = pre_tokenizer(gguf);
  files.patterns = pre.patterns;
  files.nfc = pre.nfc;
  files.ignore_merges = pre.ignore_merges;
  read_ends(gguf, pre.adds_bos, files);
  return files;
}

}  // namespace qwen
