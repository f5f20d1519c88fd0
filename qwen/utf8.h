// UTF-8: where a character ends, what becomes of bytes that are no character, and normal form C.
#pragma once

#include <string>
#include <string_view>

namespace qwen {

// What the first bytes of a text are.
struct Utf8 {
  enum class Kind {
    character,   // `length` bytes, one character
    broken,      // `length` bytes that no further byte can turn into a character
    unfinished,  // all the bytes there are, the start of a character
  };
  Kind kind;
  int length;
  char32_t code_point;  // of a character
};

// bytes is not empty.
Utf8 first_character(std::string_view bytes);

// What stands for a broken piece: U+FFFD.
inline constexpr std::string_view replacement = "\xEF\xBF\xBD";

// The text with every broken piece (the longest start of a character, or one byte) replaced by one
// U+FFFD, as Python's errors="replace" does it.
std::string repair_utf8(std::string_view text);

// Normal form C of a valid text: é as one character, not as e and an accent.
std::string nfc(std::string_view text);

// The property White_Space. (PCRE2's \s has U+180E besides, Python's strip U+001C to U+001F.)
struct CodePoints {
  char32_t first, last;
};
inline constexpr CodePoints white_space[] = {
    {0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
bool is_white_space(char32_t c);

// Letters, marks, decimal digits, connectors and joiners: what \w is elsewhere.
bool is_word_character(char32_t c);

}  // namespace qwen
