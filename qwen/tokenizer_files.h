// What a tokenizer's files say, in one form for all of them. tokenizer.h builds on it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "qwen/added_tokens.h"

namespace qwen {

struct TokenizerFiles {
  std::string source;               // the file, for messages
  std::vector<std::string> tokens;  // [id] as spelled (bpe.h); empty where the id has no token
  std::vector<std::pair<std::string, std::string>> merges;  // earliest learned first
  std::vector<AddedToken> added;
  bool nfc = false;                   // text is brought to normal form C
  std::vector<std::string> patterns;  // the rules of pretokenize.h, in order
  bool ignore_merges = false;         // a word that is a token is not merged
  std::string unk_token;              // for bytes without a token; empty: they are dropped
  bool fuse_unk = false;
  std::string bos_token;                // goes before a text; empty: nothing does
  std::vector<std::string> eos_tokens;  // the model's text, or its turn, ends with one of these
  std::vector<std::string> remarks;     // worth telling the user
};

// Ids stay below this, so that a wrong one costs a message and not the memory: each id up to the
// highest takes some 70 bytes.
inline constexpr int most_tokens = 1 << 20;

}  // namespace qwen
