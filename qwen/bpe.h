// Byte pair encoding: a word is bytes at first, then neighbours are merged, the earliest learned
// pair first, until no pair of neighbours is in the list of merges.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace qwen {

// What became of a pair: the place of the merge in the list (lower is earlier), and the new token.
struct Merge {
  int rank;
  int id;
};

// The merges by pair of token ids: a table with open addressing, since looking up a pair is all
// that encoding does.
class MergeTable {
 public:
  explicit MergeTable(std::size_t count = 0);  // of merges to come
  void add(int left, int right, Merge merge);  // the first merge of a pair counts
  const Merge* find(int left, int right) const;

 private:
  struct Slot {
    std::uint64_t pair;
    Merge merge;
  };
  std::size_t slot(std::uint64_t pair) const;
  std::vector<Slot> slots_;
};

struct Bpe {
  std::array<int, 256> byte_token;  // the token of each byte; -1: it has none
  MergeTable merges;
  int unknown = -1;           // the token of a byte that has none; -1: such bytes are dropped
  bool fuse_unknown = false;  // neighbouring unknown bytes are one token

  // Words that are tokens as they stand, whatever the merges would make of them; empty in most
  // tokenizers ("ignore_merges").
  std::unordered_map<std::string, int> whole_words;
};

// Appends the token ids of one word, in O(n log n) for n bytes.
void encode_word(const Bpe& bpe, std::string_view word, std::vector<int>& ids);

namespace plain {
// A word of single bytes, and one merge in it: of all pairs of neighbours the one learned first, of
// equal ones the leftmost. False where no pair can be merged. Repeated, this is encode_word in
// O(n^2), but for unknown bytes and whole words.
std::vector<int> byte_ids(const Bpe& bpe, std::string_view word);
bool merge_once(const Bpe& bpe, std::vector<int>& ids);
}  // namespace plain

// Byte-level vocabularies spell each byte as a letter: itself where it is printable, the next free
// letter from U+0100 on where it is not, so that a space is Ġ. The bytes of a token spelled like
// this; the text itself where a letter of it stands for no byte.
std::string bytes_of(std::string_view spelled);

// The letter that spells a byte.
std::string spelled(unsigned char byte);

}  // namespace qwen
