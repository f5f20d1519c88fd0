#include "qwen/tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

#include "qwen/checkpoint_kind.h"
#include "qwen/file.h"
#include "qwen/gguf_file.h"
#include "qwen/json.h"
#include "qwen/printable.h"
#include "qwen/tokenizer_gguf.h"
#include "qwen/tokenizer_json.h"
#include "qwen/utf8.h"

namespace qwen {

namespace {

// ---- encoding ----

// The ids of a text without added tokens. A word that has come before is not merged again.
void encode_ordinary(const Tokenizer& tokenizer, std::string_view text, std::vector<int>& ids) {
  if (tokenizer.sentencepiece) {
    const std::vector<int> pieces =
        tokenizer.sentencepiece->EncodeAsIds({text.data(), text.size()});
    ids.insert(ids.end(), pieces.begin(), pieces.end());
    return;
  }
  struct Place {
    std::size_t begin, end;  // in ids
  };
  std::unordered_map<std::string_view, Place> seen;
  for (const std::string_view word : pretokenize(tokenizer.splits, text)) {
    const auto [entry, is_new] = seen.try_emplace(word);
    Place& place = entry->second;
    if (is_new) {
      place.begin = ids.size();
      encode_word(tokenizer.bpe, word, ids);
      place.end = ids.size();
    } else {
      for (std::size_t n = place.begin; n < place.end; ++n) ids.push_back(ids[n]);
    }
  }
}

// ---- how few tokens a text can be ----

// Whether every byte of UTF-8 has a token. A run of bytes that have none can be one token, or none.
bool knows_every_byte(const Tokenizer& tokenizer) {
  if (tokenizer.sentencepiece) {
    return tokenizer.sentencepiece->IsByte(tokenizer.sentencepiece->PieceToId("<0x00>"));
  }
  for (int byte = 0; byte <= 0xF4; ++byte) {
    const bool occurs = byte != 0xC0 && byte != 0xC1;
    if (occurs && tokenizer.bpe.byte_token[byte] < 0) return false;
  }
  return true;
}

// At least so many tokens. Before a text is cut into tokens it is brought to a normal form, which
// may be shorter: by a factor of 3 (form C) or 4 (SentencePiece's), and without spaces and control
// characters where SentencePiece leaves them out.
std::size_t fewest_tokens(const Tokenizer& tokenizer, std::string_view text) {
  if (!knows_every_byte(tokenizer)) return 0;
  std::size_t longest = 1;
  for (const std::string& token : tokenizer.tokens) longest = std::max(longest, token.size());
  const bool pieces = tokenizer.sentencepiece != nullptr;
  const auto stays = [&](char c) { return !pieces || static_cast<unsigned char>(c) > 0x20; };
  const std::size_t bytes = std::count_if(text.begin(), text.end(), stays);
  return bytes / (longest * (pieces ? 4 : tokenizer.nfc ? 3 : 1));
}

// ---- building a tokenizer from what its files say ----

using Ids = std::unordered_map<std::string_view, int>;

[[noreturn]] void fail_missing(const TokenizerFiles& files, const std::string& what,
                               const std::string& token) {
  throw std::runtime_error(files.source + ": " + what + " needs the token " + shown(token) +
                           ", which is not in the vocabulary");
}

MergeTable merge_table(const TokenizerFiles& files, const Ids& ids) {
  MergeTable table(files.merges.size());
  int rank = 0;
  for (const auto& merge : files.merges) {
    const auto id = [&](const std::string& token) {
      const auto found = ids.find(token);
      if (found != ids.end()) return found->second;
      fail_missing(files, "the merge " + shown({merge.first, merge.second}), token);
    };
    const int left = id(merge.first), right = id(merge.second);
    table.add(left, right, {rank++, id(merge.first + merge.second)});
  }
  return table;
}

// tokens [id]: the bytes of those in files.
Bpe build_bpe(const TokenizerFiles& files, const std::vector<std::string>& tokens) {
  Ids ids;
  ids.reserve(files.tokens.size());
  for (std::size_t n = 0; n < files.tokens.size(); ++n) {
    if (!files.tokens[n].empty()) ids.emplace(files.tokens[n], static_cast<int>(n));
  }
  std::vector<bool> is_added(most_tokens);
  for (const AddedToken& token : files.added) is_added[token.id] = true;

  Bpe bpe;
  bpe.merges = merge_table(files, ids);
  // A byte's token stays one where it is an added token, too: "~" in ordinary text is text.
  for (int byte = 0; byte < 256; ++byte) {
    const auto token = ids.find(spelled(static_cast<unsigned char>(byte)));
    bpe.byte_token[byte] = token == ids.end() ? -1 : token->second;
  }
  bool has_longer = false;
  for (const auto& [token, id] : ids) {
    const std::string& bytes = tokens[id];
    if (is_added[id]) continue;
    has_longer |= bytes.size() > 1;
    if (files.ignore_merges) bpe.whole_words.emplace(bytes, id);
  }
  if (has_longer && files.merges.empty()) {
    throw std::runtime_error(files.source + ": a vocabulary of " + std::to_string(ids.size()) +
                             " tokens, but no merges; the file is not complete");
  }
  if (!files.unk_token.empty()) {
    const auto unknown = ids.find(files.unk_token);
    if (unknown == ids.end()) fail_missing(files, "unk_token", files.unk_token);
    bpe.unknown = unknown->second;
  }
  bpe.fuse_unknown = files.fuse_unk;
  return bpe;
}

// Added tokens in the form they have in the text they are looked for in.
std::vector<AddedToken> as_found(std::vector<AddedToken> added, bool nfc_is_used) {
  for (AddedToken& token : added) {
    if (token.normalized && nfc_is_used) token.content = nfc(token.content);
  }
  return added;
}

void index_added(const std::vector<AddedToken>& added, Tokenizer& tokenizer) {
  std::vector<AddedToken> plain, normalized;
  for (const AddedToken& token : added) (token.normalized ? normalized : plain).push_back(token);
  tokenizer.added = index_added_tokens(std::move(plain));
  tokenizer.added_normalized = index_added_tokens(std::move(normalized));
}

void set_token(const AddedToken& token, Tokenizer& tokenizer) {
  const auto id = static_cast<std::size_t>(token.id);
  if (id >= tokenizer.tokens.size()) {
    tokenizer.tokens.resize(id + 1);
    tokenizer.special.resize(id + 1);
  }
  tokenizer.tokens[id] = token.content;
  tokenizer.special[id] = token.special;
}

// The ids of tokens that the files name, those that are tokens.
void set_ends(const TokenizerFiles& files, Tokenizer& tokenizer) {
  for (const std::string& eos : files.eos_tokens) {
    if (const auto id = token_id(tokenizer, eos)) tokenizer.eos.push_back(*id);
  }
  if (const auto id = token_id(tokenizer, files.bos_token)) tokenizer.bos = *id;
}

Tokenizer build(const TokenizerFiles& files) {
  Tokenizer t;
  t.nfc = files.nfc;
  t.remarks = files.remarks;
  for (const std::string& pattern : files.patterns) {
    t.splits.push_back(make_split(pattern, files.source));
  }
  for (const std::string& token : files.tokens) t.tokens.push_back(bytes_of(token));
  t.bpe = build_bpe(files, t.tokens);
  t.special.resize(t.tokens.size());
  const std::vector<AddedToken> added = as_found(files.added, files.nfc);
  for (const AddedToken& token : added) set_token(token, t);
  while (!t.tokens.empty() && t.tokens.back().empty()) t.tokens.pop_back();
  index_added(added, t);
  set_ends(files, t);
  return t;
}

// ---- SentencePiece ----

using Processor = sentencepiece::SentencePieceProcessor;

constexpr std::string_view space = "\xE2\x96\x81";  // ▁, as SentencePiece writes a space

// What a piece decodes to. A lone byte is written as <0xE2>.
std::string piece_bytes(const Processor& model, int id) {
  const std::string& piece = model.IdToPiece(id);
  if (model.IsControl(id)) return piece;
  if (model.IsUnused(id)) return "";
  if (model.IsUnknown(id)) return " \xE2\x81\x87 ";  // ⁇, as the library decodes it
  if (model.IsByte(id)) return {static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16))};
  std::string bytes;
  for (std::string_view rest = piece; !rest.empty();) {
    const bool is_space = rest.starts_with(space);
    bytes += is_space ? ' ' : rest[0];
    rest.remove_prefix(is_space ? space.size() : 1);
  }
  return bytes;
}

std::shared_ptr<const Processor> read_sentencepiece(const std::string& path) {
  constexpr std::size_t most_bytes = 64 << 20;  // real ones have a few million
  const auto file = map_file(path);
  if (file->size() > most_bytes) {
    throw std::runtime_error(path + ": found " + std::to_string(file->size()) +
                             " bytes, expected a SentencePiece model of at most " +
                             std::to_string(most_bytes));
  }
  auto model = std::make_shared<Processor>();
  std::string complaint;
  try {
    const auto status = model->LoadFromSerializedProto({text(*file).data(), file->size()});
    if (status.ok()) return model;
    complaint = status.ToString();
  } catch (const std::exception& error) {  // of what that library stands on
    complaint = error.what();
  }
  throw std::runtime_error(path + ": not a SentencePiece model: " + on_one_line(complaint));
}

// With the added tokens in `files` whose ids come after the pieces, and the ends named there.
Tokenizer build_sentencepiece(std::shared_ptr<const Processor> model, const TokenizerFiles& files) {
  Tokenizer t;
  std::vector<AddedToken> added;
  const int pieces = model->GetPieceSize();
  for (int id = 0; id < pieces; ++id) {
    t.tokens.push_back(piece_bytes(*model, id));
    t.special.push_back(model->IsControl(id));
    if (model->IsControl(id)) added.push_back({.content = t.tokens[id], .id = id, .special = true});
  }
  for (const AddedToken& token : files.added) {
    if (token.id < pieces) continue;
    set_token(token, t);
    added.push_back(token);
  }
  index_added(added, t);
  // "a" is encoded as "▁a" where the model puts a space before each text.
  const std::vector<std::string> a = model->EncodeAsPieces("a");
  t.drops_first_space = !a.empty() && a[0].starts_with(space);
  if (model->eos_id() >= 0) t.eos.push_back(model->eos_id());
  set_ends(files, t);
  t.sentencepiece = std::move(model);
  return t;
}

Tokenizer load_sentencepiece(const std::string& directory) {
  TokenizerFiles files;
  read_tokenizer_config(directory, files);
  return build_sentencepiece(read_sentencepiece(directory + "/tokenizer.model"), files);
}

// A GGUF file lists the pieces of such a model, but not all it takes to cut a text into them. The
// model's own file does, where it stands beside.
Tokenizer load_sentencepiece(const Gguf& gguf, const std::string& path) {
  const auto model = read_sentencepiece(path);
  const TokenizerFiles files = read_gguf_pieces(gguf);
  const int pieces = files.tokens.empty() ? 0 : model->GetPieceSize();
  for (int id = 0; id < pieces; ++id) {
    const bool is_listed = static_cast<std::size_t>(id) < files.tokens.size();
    if (is_listed && (files.tokens[id].empty() || files.tokens[id] == model->IdToPiece(id)))
      continue;
    throw std::runtime_error(path + ": token " + std::to_string(id) + " is " +
                             in_quotes(model->IdToPiece(id)) + ", but " + gguf.path + " has " +
                             (is_listed ? in_quotes(files.tokens[id]) : "none") +
                             ": it belongs to another model");
  }
  return build_sentencepiece(model, files);
}

}  // namespace

Tokenizer load_tokenizer(const std::string& path) {
  const std::string directory = checkpoint_folder(path);
  const std::string pieces = directory + "/tokenizer.model";
  if (checkpoint_kind(path) == CheckpointKind::gguf) {
    const Gguf gguf = read_gguf(path);
    if (is_sentencepiece(gguf) && exists(pieces)) return load_sentencepiece(gguf, pieces);
    return build(read_gguf_tokenizer(gguf));
  }
  const auto has = [&](const char* name) { return exists(directory + "/" + name); };
  if (exists(pieces) && (!has("tokenizer.json") || describes_sentencepiece(directory))) {
    return load_sentencepiece(directory);
  }
  if (has("tokenizer.json")) return build(read_tokenizer_json(directory));
  if (has("vocab.json") && has("merges.txt")) return build(read_vocab_and_merges(directory));
  throw std::runtime_error(directory + ": no tokenizer there, expected tokenizer.json, or " +
                           "vocab.json and merges.txt, or tokenizer.model");
}

std::vector<int> encode(const Tokenizer& tokenizer, std::string_view text, AddedTokens added) {
  const std::string valid = repair_utf8(text);
  const AddedTokenIndex none;
  const bool match = added == AddedTokens::matched;
  std::vector<int> ids;
  for (const Stretch& outer : cut(match ? tokenizer.added : none, valid)) {
    if (outer.id >= 0) {
      ids.push_back(outer.id);
      continue;
    }
    const std::string normal = tokenizer.nfc ? nfc(outer.text) : std::string(outer.text);
    for (const Stretch& inner : cut(match ? tokenizer.added_normalized : none, normal)) {
      if (inner.id >= 0) {
        ids.push_back(inner.id);
      } else {
        encode_ordinary(tokenizer, inner.text, ids);
      }
    }
  }
  return ids;
}

void expect_room(const Tokenizer& tokenizer, std::string_view text, int room) {
  const std::size_t most = std::max(room, 0);
  if (text.size() <= most) return;
  const std::size_t fewest = fewest_tokens(tokenizer, text);
  if (fewest <= most) return;
  throw std::invalid_argument("[tokenizer] a text of " + std::to_string(text.size()) +
                              " bytes is at least " + std::to_string(fewest) +
                              " tokens, and the context has room for " + std::to_string(most));
}

std::vector<int> encode_prompt(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int> ids = encode(tokenizer, text);
  if (tokenizer.bos >= 0) ids.insert(ids.begin(), tokenizer.bos);
  return ids;
}

std::string decode_next(const Tokenizer& tokenizer, TextStream& stream, int id) {
  if (id < 0 || id >= vocabulary_size(tokenizer) || tokenizer.special[id]) return "";
  std::string_view bytes = tokenizer.tokens[id];
  if (tokenizer.drops_first_space && !stream.started && bytes.starts_with(' ')) {
    bytes.remove_prefix(1);
  }
  stream.started |= !tokenizer.tokens[id].empty();
  stream.held += bytes;
  std::string out;
  std::string_view rest = stream.held;
  while (!rest.empty()) {
    const Utf8 c = first_character(rest);
    if (c.kind == Utf8::Kind::unfinished) break;
    out += c.kind == Utf8::Kind::character ? rest.substr(0, c.length) : replacement;
    rest.remove_prefix(c.length);
  }
  stream.held = std::string(rest);
  return out;
}

std::string finish(TextStream& stream) {
  const bool held = !stream.held.empty();
  stream.held.clear();
  return held ? std::string(replacement) : "";
}

std::string decode(const Tokenizer& tokenizer, std::span<const int> ids) {
  TextStream stream;
  std::string text;
  for (const int id : ids) text += decode_next(tokenizer, stream, id);
  return text + finish(stream);
}

std::optional<int> token_id(const Tokenizer& tokenizer, std::string_view content) {
  for (const AddedTokenIndex* index : {&tokenizer.added, &tokenizer.added_normalized}) {
    for (const AddedToken& token : index->tokens) {
      if (token.content == content) return token.id;
    }
  }
  return std::nullopt;
}

int vocabulary_size(const Tokenizer& tokenizer) {
  return static_cast<int>(tokenizer.tokens.size());
}

}  // namespace qwen
