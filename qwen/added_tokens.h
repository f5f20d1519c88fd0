// Added tokens: texts that are one token each and are cut out before anything else is done, such
// as <|im_end|>.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace qwen {

// The flags as tokenizer.json has them.
struct AddedToken {
  std::string content;
  int id = 0;
  bool special = false;      // a marker: it decodes to nothing
  bool single_word = false;  // only where no letter or digit stands beside it
  bool lstrip = false;       // takes the white space on its left along
  bool rstrip = false;       // … on its right
  bool normalized = false;   // looked for in the normalised text
};

// A piece of text: one added token, or the ordinary text between two.
struct Stretch {
  std::string_view text;
  int id = -1;  // -1: ordinary text
};

// Added tokens, ready to be looked for: an automaton (Aho and Corasick's) that reads a text from
// its end to its beginning and knows at each byte which token begins there. That takes one pass,
// however many tokens begin alike.
struct AddedTokenIndex {
  // What has been read last is the end of some tokens: as much of them as can be.
  struct State {
    std::unordered_map<char, int> next;  // one byte more of them
    int shorter = 0;                     // the state for less of the text
    int token = -1;                      // the longest that begins here, by its place in tokens
  };
  std::vector<AddedToken> tokens;  // of two with the same content the first counts
  std::vector<State> states;       // [0]: nothing read that counts; empty without tokens
};

AddedTokenIndex index_added_tokens(std::vector<AddedToken> tokens);

// Cuts the text at the tokens found in it: the leftmost first, of several there the longest.
std::vector<Stretch> cut(const AddedTokenIndex& index, std::string_view text);

}  // namespace qwen
