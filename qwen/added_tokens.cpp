#include "qwen/added_tokens.h"

#include <algorithm>

#include "qwen/utf8.h"

namespace qwen {

namespace {

// The character that ends where `text` ends; 0 for an empty text.
char32_t last_character(std::string_view text) {
  if (text.empty()) return 0;
  std::size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return first_character(text.substr(begin)).code_point;
}

bool stands_alone(std::string_view before, std::string_view after) {
  const bool letter_before = !before.empty() && is_word_character(last_character(before));
  const bool letter_after = !after.empty() && is_word_character(first_character(after).code_point);
  return !letter_before && !letter_after;
}

// Bytes of white space at the start, and at the end.
std::size_t leading_space(std::string_view text) {
  std::size_t n = 0;
  while (n < text.size()) {
    const Utf8 c = first_character(text.substr(n));
    if (!is_white_space(c.code_point)) break;
    n += c.length;
  }
  return n;
}

std::size_t trailing_space(std::string_view text) {
  std::size_t begin = text.size();
  while (begin > 0 && is_white_space(last_character(text.substr(0, begin)))) {
    do --begin;
    while ((static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80);
  }
  return text.size() - begin;
}

const AddedToken* token_at(const AddedTokenIndex& index, std::string_view text) {
  for (const int n : index.starting_with[static_cast<unsigned char>(text[0])]) {
    if (text.starts_with(index.tokens[n].content)) return &index.tokens[n];
  }
  return nullptr;
}

}  // namespace

AddedTokenIndex index_added_tokens(std::vector<AddedToken> tokens) {
  std::erase_if(tokens, [](const AddedToken& token) { return token.content.empty(); });
  std::stable_sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) {
    return a.content.size() > b.content.size();
  });
  AddedTokenIndex index{std::move(tokens), {}};
  for (std::size_t n = 0; n < index.tokens.size(); ++n) {
    const auto first = static_cast<unsigned char>(index.tokens[n].content[0]);
    index.starting_with[first].push_back(static_cast<int>(n));
  }
  return index;
}

std::vector<Stretch> cut(const AddedTokenIndex& index, std::string_view text) {
  std::vector<Stretch> stretches;
  std::size_t done = 0;
  const auto ordinary_until = [&](std::size_t end) {
    if (end > done) stretches.push_back({text.substr(done, end - done)});
  };
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* token = token_at(index, text.substr(at));
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + token->content.size();
    at = end;  // a token that may not stand here is passed over as a whole
    if (token->single_word && !stands_alone(text.substr(0, begin), text.substr(end))) continue;
    if (token->lstrip) begin -= trailing_space(text.substr(done, begin - done));
    if (token->rstrip) end += leading_space(text.substr(end));
    ordinary_until(begin);
    stretches.push_back({text.substr(begin, end - begin), token->id});
    done = at = end;
  }
  ordinary_until(text.size());
  return stretches;
}

}  // namespace qwen
