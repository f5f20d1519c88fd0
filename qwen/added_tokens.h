// Added tokens: texts that are one token each and are cut out before anything else is done, such
// as <|im_end|>.
#pragma once

#include <array>
#include <string>
#include <string_view>
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

// Added tokens, ready to be looked for.
struct AddedTokenIndex {
  std::vector<AddedToken> tokens;                   // longest first
  std::array<std::vector<int>, 256> starting_with;  // by first byte; in the same order
};

AddedTokenIndex index_added_tokens(std::vector<AddedToken> tokens);

// Cuts the text at the tokens found in it: the leftmost first, of several there the longest.
std::vector<Stretch> cut(const AddedTokenIndex& index, std::string_view text);

}  // namespace qwen
