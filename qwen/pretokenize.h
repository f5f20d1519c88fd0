// Cutting text into words. Byte pair encoding works inside a word, never across its border.
//
//   "it's 24 °C"  ─ pattern ─  "it" "'s" " 24" " °" "C"
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct pcre2_real_code_8;  // a compiled pattern of PCRE2

namespace qwen {

// A rule that cuts text: each match of the pattern is a piece, and so is what lies between two.
struct Split {
  std::string pattern;  // as the file has it
  std::shared_ptr<const pcre2_real_code_8> code;
};

// Compiles a pattern. `source` is the file, for messages; std::runtime_error for a bad pattern.
Split make_split(const std::string& pattern, const std::string& source);

// A pattern that matches a literal text.
std::string literal_pattern(std::string_view text);

// The pieces of a valid UTF-8 text, in order; together they are the whole text. Each rule cuts
// the pieces that the rule before it left, and sees nothing beyond the piece.
std::vector<std::string_view> pretokenize(const std::vector<Split>& splits, std::string_view text);

// The patterns that tokenizers are known by, where a file has only the name.
namespace patterns {
inline constexpr const char* gpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr const char* qwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr const char* qwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr const char* llama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr const char* digit = R"(\p{N})";
inline constexpr const char* number = R"(\p{N}+)";
}  // namespace patterns

}  // namespace qwen
