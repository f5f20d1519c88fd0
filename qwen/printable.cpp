#include "qwen/printable.h"

#include <algorithm>
#include <cstdio>

namespace qwen {
namespace {

// As C++ writes it: \n, \x1b.
std::string escaped(unsigned char byte) {
  if (byte == '\n') return "\\n";
  if (byte == '\r') return "\\r";
  if (byte == '\t') return "\\t";
  char text[5];
  std::snprintf(text, sizeof text, "\\x%02x", byte);
  return text;
}

// The text with its control characters escaped (in UTF-8 some of them are two bytes, C2 80 to
// C2 9F), and a backslash before the characters in `also`.
std::string escaped(std::string_view text, std::string_view also) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_pair = byte(i) == 0xC2 && i + 1 < text.size() && (byte(i + 1) & 0xE0) == 0x80;
    if (is_pair) ++i;
    if (is_pair || byte(i) < ' ' || byte(i) == 0x7F) {
      out += escaped(byte(i));
      continue;
    }
    if (also.find(text[i]) != also.npos) out += '\\';
    out += text[i];
  }
  return out;
}

// Whether a byte is one of a character's bytes and not its first.
bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

}  // namespace

std::string on_one_line(std::string_view text) {
  return escaped(text, "");
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  std::size_t end = std::min(text.size(), kLongest);  // not within a character
  while (end < text.size() && end > 0 && is_continuation(text[end])) --end;
  std::string out = "\"";
  out += escaped(text.substr(0, end), "\"\\");
  return out += end < text.size() ? "…\"" : "\"";
}

}  // namespace qwen
