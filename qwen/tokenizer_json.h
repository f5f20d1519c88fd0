// Tokenizers in a model's directory: tokenizer.json, or the older pair vocab.json and merges.txt;
// beside them tokenizer_config.json.
#pragma once

#include <string>

#include "qwen/tokenizer_files.h"

namespace qwen {

// Each throws std::runtime_error, one line, for what is missing, wrong or not supported.
TokenizerFiles read_tokenizer_json(const std::string& directory);

// The pair says nothing of normal form and pattern. They follow from tokenizer_class in
// tokenizer_config.json, or else from model_type in config.json.
TokenizerFiles read_vocab_and_merges(const std::string& directory);

// What tokenizer_config.json says, where there is one: the ends of a text, and how it starts.
void read_tokenizer_config(const std::string& directory, TokenizerFiles& files);

// Whether tokenizer.json describes a SentencePiece model (whose own file is tokenizer.model).
bool describes_sentencepiece(const std::string& directory);

}  // namespace qwen
