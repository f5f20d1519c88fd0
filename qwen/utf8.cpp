#include "qwen/utf8.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

namespace qwen {

namespace {

struct Lead {
  int length;                // of the character; 0 where no character starts like this
  unsigned char low, high;   // the range of its second byte
  unsigned char value_bits;  // mask of the bits that count
};

// Table 3-7 of the Unicode standard. The narrow ranges keep out overlong forms (E0, F0),
// surrogates (ED) and what is above U+10FFFF (F4).
Lead lead(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0, 0x7F};
  if (byte < 0xC2) return {0, 0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF, 0x1F};
  if (byte == 0xE0) return {3, 0xA0, 0xBF, 0x0F};
  if (byte == 0xED) return {3, 0x80, 0x9F, 0x0F};
  if (byte < 0xF0) return {3, 0x80, 0xBF, 0x0F};
  if (byte == 0xF0) return {4, 0x90, 0xBF, 0x07};
  if (byte < 0xF4) return {4, 0x80, 0xBF, 0x07};
  if (byte == 0xF4) return {4, 0x80, 0x8F, 0x07};
  return {0, 0, 0, 0};
}

constexpr auto compose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

int combining_class(utf8proc_int32_t c) {
  return utf8proc_get_property(c)->combining_class;
}

std::vector<utf8proc_int32_t> decomposed(std::string_view text) {
  std::vector<utf8proc_int32_t> out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8 c = first_character(text);
    text.remove_prefix(c.length);
    utf8proc_int32_t parts[16];
    int boundary = 0;
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code_point), parts,
                                           std::size(parts), compose, &boundary);
    out.insert(out.end(), parts, parts + n);
  }
  return out;
}

// Marks that follow one another are put in the order of their classes. (utf8proc does it by
// swapping neighbours: a megabyte of marks would take minutes.)
void sort_marks(std::vector<utf8proc_int32_t>& text) {
  const auto is_mark = [](auto c) { return combining_class(c) > 0; };
  for (auto begin = text.begin(); begin != text.end();) {
    begin = std::find_if(begin, text.end(), is_mark);
    const auto end = std::find_if_not(begin, text.end(), is_mark);
    std::stable_sort(begin, end,
                     [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

}  // namespace

Utf8 first_character(std::string_view bytes) {
  const Lead first = lead(static_cast<unsigned char>(bytes[0]));
  if (first.length == 0) return {Utf8::Kind::broken, 1, 0};
  char32_t value = static_cast<unsigned char>(bytes[0]) & first.value_bits;
  for (int i = 1; i < first.length; ++i) {
    if (i == static_cast<int>(bytes.size())) return {Utf8::Kind::unfinished, i, 0};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (byte < (i == 1 ? first.low : 0x80) || byte > (i == 1 ? first.high : 0xBF)) {
      return {Utf8::Kind::broken, i, 0};
    }
    value = value << 6 | (byte & 0x3F);
  }
  return {Utf8::Kind::character, first.length, value};
}

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8 c = first_character(text);
    out += c.kind == Utf8::Kind::character ? text.substr(0, c.length) : replacement;
    text.remove_prefix(c.length);
  }
  return out;
}

std::string nfc(std::string_view text) {
  // Every lead byte below U+0300 is below CC, and no text below U+0300 can be composed.
  const bool composed = std::none_of(
      text.begin(), text.end(), [](char byte) { return static_cast<unsigned char>(byte) >= 0xCC; });
  if (composed) return std::string(text);
  std::vector<utf8proc_int32_t> points = decomposed(text);
  sort_marks(points);
  const auto length = utf8proc_normalize_utf32(
      points.data(), static_cast<utf8proc_ssize_t>(points.size()), compose);
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < length; ++i) {
    utf8proc_uint8_t bytes[4];
    const auto n = utf8proc_encode_char(points[i], bytes);
    out.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(n));
  }
  return out;
}

bool is_white_space(char32_t c) {
  return std::any_of(std::begin(white_space), std::end(white_space),
                     [c](CodePoints range) { return range.first <= c && c <= range.last; });
}

bool is_word_character(char32_t c) {
  constexpr char32_t zero_width_non_joiner = 0x200C, zero_width_joiner = 0x200D;
  if (c == zero_width_non_joiner || c == zero_width_joiner) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

}  // namespace qwen
