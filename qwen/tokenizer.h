// From text to token ids and back.
//
//   text ─ repair ─ added tokens cut out ─ normal form C ─ words ─ byte pair encoding ─ ids
//   ids ─ bytes of each ─ whole characters ─ text
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qwen/added_tokens.h"
#include "qwen/bpe.h"
#include "qwen/pretokenize.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace qwen {

struct Tokenizer {
  std::vector<std::string> tokens;   // [id] the token's bytes; empty where the id has none
  std::vector<bool> special;         // [id] a marker, such as <|im_end|>: it decodes to nothing
  AddedTokenIndex added;             // looked for in the text as it comes
  AddedTokenIndex added_normalized;  // looked for after normalisation
  bool nfc = false;
  std::vector<Split> splits;
  Bpe bpe;
  // Set for SentencePiece models: the library does the work of nfc, splits and bpe.
  std::shared_ptr<const sentencepiece::SentencePieceProcessor> sentencepiece;
  bool drops_first_space =
      false;             // SentencePiece puts a space before a text; decoding takes it off
  int bos = -1;          // belongs before a text; -1: nothing does
  std::vector<int> eos;  // as the tokenizer's files say; a model's config may name others
  std::vector<std::string> remarks;  // worth telling the user, one line each
};

// The tokenizer of a checkpoint. `path` as for open_checkpoint: a directory (tokenizer.json, or
// vocab.json and merges.txt, or tokenizer.model), a safetensors file in one, or a GGUF file (where
// its tokenizer is SentencePiece's, with the tokenizer.model beside it). std::runtime_error, one
// line, for what is missing, wrong or not supported.
Tokenizer load_tokenizer(const std::string& path);

// Whether text that spells an added token becomes that token. In what users write it must not:
// "<|im_end|>" in a message would end the message.
enum class AddedTokens { matched, as_text };

// Bytes that are no UTF-8 count as U+FFFD. No token is put in front (see Tokenizer::bos).
std::vector<int> encode(const Tokenizer& tokenizer, std::string_view text,
                        AddedTokens added = AddedTokens::matched);

// std::invalid_argument where the text is certainly more than `room` tokens, by its bytes and those
// of the longest token: encoding takes up to 800 ns and 230 bytes of memory for each byte, too much
// for what does not fit anyway.
void expect_room(const Tokenizer& tokenizer, std::string_view text, int room);

// A text that begins here: with the token in front that belongs there, if one does.
std::vector<int> encode_prompt(const Tokenizer& tokenizer, std::string_view text);

// Valid UTF-8; bytes that form no character become U+FFFD. Special tokens and ids without a token
// are nothing.
std::string decode(const Tokenizer& tokenizer, std::span<const int> ids);

// Decoding as the ids come. Bytes of an unfinished character are held back; what all calls return,
// one after the other, is what decode returns for all ids.
struct TextStream {
  std::string held;      // the start of a character
  bool started = false;  // some text has come
};
std::string decode_next(const Tokenizer& tokenizer, TextStream& stream, int id);
std::string finish(TextStream& stream);  // what is still held: U+FFFD, or nothing

// The id of an added token by its text: token_id(tokenizer, "<|im_end|>").
std::optional<int> token_id(const Tokenizer& tokenizer, std::string_view content);

// One more than the highest id that has a token. (A model's head may have more rows.)
int vocabulary_size(const Tokenizer& tokenizer);

}  // namespace qwen
