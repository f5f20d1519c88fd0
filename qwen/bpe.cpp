#include "qwen/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <queue>
#include <tuple>

#include "qwen/utf8.h"

namespace qwen {

namespace {

constexpr std::uint64_t empty = ~std::uint64_t{0};  // no pair: ids are not negative

std::uint64_t key(int left, int right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

// A token of the word and its neighbours: a linked list in an array, in the order of the text.
struct Symbol {
  int id;  // -1: merged into its left neighbour
  int previous, next;
};

// Two neighbours that may be merged, as they were when they became neighbours.
struct Candidate {
  Merge merge;
  int position;  // of the left one
  int left, right;
  bool operator>(const Candidate& other) const {
    return std::tie(merge.rank, position) > std::tie(other.merge.rank, other.position);
  }
};
using Candidates = std::priority_queue<Candidate, std::vector<Candidate>, std::greater<Candidate>>;

std::vector<Symbol> byte_symbols(const Bpe& bpe, std::string_view word) {
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  bool after_unknown = false;
  for (const char byte : word) {
    const int known = bpe.byte_token[static_cast<unsigned char>(byte)];
    const int id = known >= 0 ? known : bpe.unknown;
    const bool fused = known < 0 && after_unknown && bpe.fuse_unknown;
    after_unknown = known < 0;
    if (id < 0 || fused) continue;
    const int n = static_cast<int>(symbols.size());
    symbols.push_back({id, n - 1, n + 1});
  }
  if (!symbols.empty()) symbols.back().next = -1;
  return symbols;
}

void consider(const Bpe& bpe, const std::vector<Symbol>& symbols, int position,
              Candidates& candidates) {
  if (position < 0 || symbols[position].next < 0) return;
  const int left = symbols[position].id, right = symbols[symbols[position].next].id;
  if (const Merge* merge = bpe.merges.find(left, right)) {
    candidates.push({*merge, position, left, right});
  }
}

constexpr char32_t last_letter = 0x143;

constexpr auto letter_of_byte = [] {
  std::array<char32_t, 256> letters{};
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    letters[byte] = is_printable ? byte : next++;
  }
  return letters;
}();

}  // namespace

// At most half of the slots are taken, so that a search ends soon.
MergeTable::MergeTable(std::size_t count)
    : slots_(std::bit_ceil(2 * count + 2), Slot{empty, {0, 0}}) {}

// Where the pair is, or would be.
std::size_t MergeTable::slot(std::uint64_t pair) const {
  constexpr std::uint64_t golden_ratio = 0x9E3779B97F4A7C15;  // spreads neighbouring ids
  const std::size_t mask = slots_.size() - 1;
  std::size_t n = (pair * golden_ratio >> 32) & mask;
  while (slots_[n].pair != pair && slots_[n].pair != empty) n = (n + 1) & mask;
  return n;
}

void MergeTable::add(int left, int right, Merge merge) {
  Slot& s = slots_[slot(key(left, right))];
  if (s.pair == empty) s = {key(left, right), merge};
}

const Merge* MergeTable::find(int left, int right) const {
  const Slot& s = slots_[slot(key(left, right))];
  return s.pair == empty ? nullptr : &s.merge;
}

void encode_word(const Bpe& bpe, std::string_view word, std::vector<int>& ids) {
  if (!bpe.whole_words.empty()) {
    const auto whole = bpe.whole_words.find(std::string(word));
    if (whole != bpe.whole_words.end()) return ids.push_back(whole->second);
  }
  std::vector<Symbol> symbols = byte_symbols(bpe, word);
  Candidates candidates;
  for (int n = 0; n < static_cast<int>(symbols.size()); ++n) {
    consider(bpe, symbols, n, candidates);
  }
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = symbols[best.position];
    // One of the two may have been merged with its other neighbour since.
    if (left.id != best.left || left.next < 0 || symbols[left.next].id != best.right) continue;
    Symbol& right = symbols[left.next];
    left.id = best.merge.id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[left.next].previous = best.position;
    consider(bpe, symbols, left.previous, candidates);
    consider(bpe, symbols, best.position, candidates);
  }
  for (int n = symbols.empty() ? -1 : 0; n >= 0; n = symbols[n].next) {
    ids.push_back(symbols[n].id);
  }
}

namespace plain {

std::vector<int> byte_ids(const Bpe& bpe, std::string_view word) {
  std::vector<int> ids;
  for (const char byte : word) ids.push_back(bpe.byte_token[static_cast<unsigned char>(byte)]);
  return ids;
}

bool merge_once(const Bpe& bpe, std::vector<int>& ids) {
  const Merge* best = nullptr;
  std::size_t place = 0;
  for (std::size_t n = 0; n + 1 < ids.size(); ++n) {
    const Merge* merge = bpe.merges.find(ids[n], ids[n + 1]);
    if (merge == nullptr || (best != nullptr && best->rank <= merge->rank)) continue;
    best = merge;
    place = n;
  }
  if (best == nullptr) return false;
  ids[place] = best->id;
  ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  return true;
}

}  // namespace plain

std::string bytes_of(std::string_view spelled) {
  static const auto byte_of_letter = [] {
    std::array<int, last_letter + 1> table;
    table.fill(-1);
    for (int byte = 0; byte < 256; ++byte) table[letter_of_byte[byte]] = byte;
    return table;
  }();
  std::string bytes;
  for (std::string_view rest = spelled; !rest.empty();) {
    const Utf8 letter = first_character(rest);
    const bool known = letter.kind == Utf8::Kind::character &&
                       letter.code_point < byte_of_letter.size() &&
                       byte_of_letter[letter.code_point] >= 0;
    if (!known) return std::string(spelled);
    bytes += static_cast<char>(byte_of_letter[letter.code_point]);
    rest.remove_prefix(letter.length);
  }
  return bytes;
}

std::string spelled(unsigned char byte) {
  const auto letter = static_cast<unsigned>(letter_of_byte[byte]);
  if (letter < 0x80) return {static_cast<char>(letter)};
  return {static_cast<char>(0xC0 | letter >> 6), static_cast<char>(0x80 | (letter & 0x3F))};
}

}  // namespace qwen
