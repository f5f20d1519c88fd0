// Tokenizers in the metadata of a GGUF file: tokenizer.ggml.*
#pragma once

#include "qwen/gguf_file.h"
#include "qwen/tokenizer_files.h"

namespace qwen {

// Byte-level BPE ("gpt2"). std::runtime_error, one line, for what is missing, wrong or unknown.
TokenizerFiles read_gguf_tokenizer(const Gguf& gguf);

// SentencePiece ("llama"): whether the file has such a tokenizer, and what it says of it: pieces,
// added tokens and ends.
bool is_sentencepiece(const Gguf& gguf);
TokenizerFiles read_gguf_pieces(const Gguf& gguf);

}  // namespace qwen
