#include "qwen/added_tokens.h"

#include <utility>

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

using State = AddedTokenIndex::State;

// The state after one byte more.
int step(const std::vector<State>& states, int state, char byte) {
  for (;; state = states[state].shorter) {
    const auto next = states[state].next.find(byte);
    if (next != states[state].next.end()) return next->second;
    if (state == 0) return 0;
  }
}

// Adds the states of a token, the n-th.
void add(std::vector<State>& states, std::string_view content, int n) {
  int state = 0;
  for (auto byte = content.rbegin(); byte != content.rend(); ++byte) {
    const auto [next, is_new] = states[state].next.try_emplace(*byte, states.size());
    state = next->second;
    if (is_new) states.emplace_back();
  }
  if (states[state].token < 0) states[state].token = n;
}

// What each state falls back to: a state of fewer bytes, so those come first.
void link(std::vector<State>& states) {
  std::vector<int> in_order = {0};
  for (std::size_t i = 0; i < in_order.size(); ++i) {
    const int parent = in_order[i];
    for (const auto& [byte, child] : states[parent].next) {
      State& state = states[child];
      if (parent != 0) state.shorter = step(states, states[parent].shorter, byte);
      if (state.token < 0) state.token = states[state.shorter].token;
      in_order.push_back(child);
    }
  }
}

// A token and where it begins.
struct Found {
  std::size_t begin;
  int token;
};

// The longest token at every byte where one begins, from the end of the text to its beginning.
std::vector<Found> find_all(const std::vector<State>& states, std::string_view text) {
  std::vector<Found> all;
  int state = 0;
  for (std::size_t at = text.size(); at-- > 0 && !states.empty();) {
    state = step(states, state, text[at]);
    if (states[state].token >= 0) all.push_back({at, states[state].token});
  }
  return all;
}

}  // namespace

AddedTokenIndex index_added_tokens(std::vector<AddedToken> tokens) {
  std::erase_if(tokens, [](const AddedToken& token) { return token.content.empty(); });
  AddedTokenIndex index{std::move(tokens), {}};
  if (index.tokens.empty()) return index;
  index.states.emplace_back();
  for (std::size_t n = 0; n < index.tokens.size(); ++n) {
    add(index.states, index.tokens[n].content, static_cast<int>(n));
  }
  link(index.states);
  return index;
}

std::vector<Stretch> cut(const AddedTokenIndex& index, std::string_view text) {
  std::vector<Stretch> stretches;
  std::size_t done = 0;
  const auto ordinary_until = [&](std::size_t end) {
    if (end > done) stretches.push_back({text.substr(done, end - done)});
  };
  const std::vector<Found> all = find_all(index.states, text);
  std::size_t at = 0;
  for (auto found = all.rbegin(); found != all.rend(); ++found) {
    if (found->begin < at) continue;  // inside another token
    const AddedToken& token = index.tokens[found->token];
    std::size_t begin = found->begin, end = begin + token.content.size();
    at = end;  // a token that may not stand here is passed over as a whole
    if (token.single_word && !stands_alone(text.substr(0, begin), text.substr(end))) continue;
    if (token.lstrip) begin -= trailing_space(text.substr(done, begin - done));
    if (token.rstrip) end += leading_space(text.substr(end));
    ordinary_until(begin);
    stretches.push_back({text.substr(begin, end - begin), token.id});
    done = at = end;
  }
  ordinary_until(text.size());
  return stretches;
}

}  // namespace qwen
