#include "qwen/pretokenize.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cctype>
#include <cstdint>
#include <cstdio>
#include <stdexcept>

#include "qwen/printable.h"
#include "qwen/utf8.h"

namespace qwen {

namespace {

// A range of a character class: \x{2000}-\x{200a}.
std::string class_range(char32_t first, char32_t last) {
  char range[40];
  std::snprintf(range, sizeof range, "\\x{%x}-\\x{%x}", static_cast<unsigned>(first),
                static_cast<unsigned>(last));
  return range;
}

// The inside of a character class: white space, or all that is none.
std::string space_ranges(bool negated) {
  std::string ranges;
  char32_t next = 0;
  for (const CodePoints& space : white_space) {
    ranges += negated ? class_range(next, space.first - 1) : class_range(space.first, space.last);
    next = space.last + 1;
  }
  return negated ? ranges + class_range(next, 0x10FFFF) : ranges;
}

// \s and \S spelled out, since PCRE2's own \s takes U+180E too, and its older versions do not know
// \p{White_Space}.
std::string with_plain_spaces(const std::string& pattern) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's' || escaped == 'S') {
        const std::string ranges = space_ranges(escaped == 'S');
        out += in_class ? ranges : "[" + ranges + "]";
      } else {
        (out += c) += escaped;
      }
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

std::string pcre2_message(int error) {
  PCRE2_UCHAR text[200];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;

// Finds the next match at or after `start`; false where there is none. [begin, end) is its place.
bool find(const Split& split, std::string_view text, std::size_t start, pcre2_match_data* data,
          std::size_t& begin, std::size_t& end) {
  const auto match = [&](std::uint32_t options) {
    return pcre2_match(split.code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                       start, PCRE2_NO_UTF_CHECK | options, data, nullptr);
  };
  int result = match(0);
  // Compiled patterns run on a small stack; the interpreter takes its memory from the heap.
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(PCRE2_NO_JIT);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0) {
    throw std::invalid_argument("[pretokenize] the pattern " + in_quotes(split.pattern) +
                                " gave up at byte " + std::to_string(start) +
                                " of a text: " + pcre2_message(result));
  }
  const std::size_t* place = pcre2_get_ovector_pointer(data);
  begin = place[0];
  end = place[1];
  return true;
}

void cut(const Split& split, std::string_view text, std::vector<std::string_view>& pieces) {
  const MatchData data(pcre2_match_data_create_from_pattern(split.code.get(), nullptr),
                       pcre2_match_data_free);
  std::size_t done = 0, start = 0, begin = 0, end = 0;
  while (start < text.size() && find(split, text, start, data.get(), begin, end)) {
    if (begin > done) pieces.push_back(text.substr(done, begin - done));
    if (end > begin) pieces.push_back(text.substr(begin, end - begin));
    done = start = end;
    const bool stands_still = begin == end && end < text.size();
    if (stands_still) start += first_character(text.substr(end)).length;
  }
  if (done < text.size()) pieces.push_back(text.substr(done));
}

}  // namespace

Split make_split(const std::string& pattern, const std::string& source) {
  const std::string plain = with_plain_spaces(pattern);
  int error = 0;
  std::size_t offset = 0;
  // MULTILINE: ^ and $ stand at line ends too in the regular expressions these files are made for.
  const std::uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(plain.data()), plain.size(),
                                   options, &error, &offset, nullptr);
  if (code == nullptr) {
    throw std::runtime_error(source + ": the pattern " + in_quotes(pattern) +
                             " cannot be compiled: " + pcre2_message(error));
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // only speed: without it the interpreter runs
  return {pattern, std::shared_ptr<const pcre2_code>(code, [](const pcre2_code* c) {
            pcre2_code_free(const_cast<pcre2_code*>(c));
          })};
}

std::string literal_pattern(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && !std::isalnum(byte)) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

std::vector<std::string_view> pretokenize(const std::vector<Split>& splits, std::string_view text) {
  std::vector<std::string_view> pieces;
  if (!text.empty()) pieces.push_back(text);
  for (const Split& split : splits) {
    std::vector<std::string_view> smaller;
    for (const std::string_view piece : pieces) cut(split, piece, smaller);
    pieces = std::move(smaller);
  }
  return pieces;
}

}  // namespace qwen
