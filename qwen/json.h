// Reading JSON that others wrote: every complaint is one line that names file, key, what was found
// and what was expected.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

using Json = nlohmann::json;                 // members sorted by key, found in logarithmic time
using OrderedJson = nlohmann::ordered_json;  // members as written, found one by one

// Parses a whole text; `source` is the file or whatever else messages should name. Of members with
// the same key the last counts. std::runtime_error for bad syntax and for values nested more than
// 100 deep. (The library parses any depth without recursion, but what walks the result does
// recurse.) Also for an ordered object of more than 1,000 members, since each new one is compared
// with all before it.
//
// The ordered kind keeps integers beyond 64 bits, which Json rounds to a double: see big_integer.
Json parse_json(std::string_view text, const std::string& source);
OrderedJson parse_ordered_json(std::string_view text, const std::string& source);

// A member that another of the same key took the place of.
struct Replaced {
  std::vector<std::string> path;  // the keys that lead to it; "" for a place in a list
  Json value;                     // what it was
};

// The same, with all that was replaced, for formats that allow no key twice.
Json parse_json(std::string_view text, const std::string& source, std::vector<Replaced>& replaced);

// The digits of an integer that no 64 bits hold; nothing for any other value. (The library has no
// such type. It has one that JSON cannot express, bytes: they are held as that.)
std::optional<std::string> big_integer(const OrderedJson& value);

// The text of a value: on one line, or indented. Bytes that are no UTF-8 become U+FFFD.
std::string json_text(const OrderedJson& value, int indent = -1);

// Reads and parses a file.
Json read_json(const std::string& path);
OrderedJson read_ordered_json(const std::string& path);

// A view of a JSON object and the place it came from; its getters throw std::runtime_error. The
// object itself must outlive the view.
class JsonObject {
 public:
  // Throws when `value` is no object.
  JsonObject(const Json& value, std::string source);

  const Json& value() const { return *value_; }
  const std::string& source() const { return source_; }

  // Present and not null.
  bool has(const std::string& key) const;

  // The member of that name; it must be there and have the type, numbers must be in the range.
  std::string string(const std::string& key) const;
  bool boolean(const std::string& key) const;
  double number(const std::string& key) const;
  std::int64_t integer(const std::string& key, std::int64_t lowest, std::int64_t highest) const;
  // A list of integers; a single one counts as a list.
  std::vector<std::int64_t> integers(const std::string& key, std::int64_t lowest,
                                     std::int64_t highest) const;
  JsonObject object(const std::string& key) const;
  const Json& array(const std::string& key) const;

  // Complains about a member: "SOURCE: KEY is FOUND, expected EXPECTED".
  [[noreturn]] void fail(const std::string& key, const std::string& expected) const;

 private:
  const Json& member(const std::string& key, const char* expected) const;

  const Json* value_;
  std::string source_;
};

// A value as a file holds it, every member on a line of its own. Strings from outside, such as the
// name of a folder, may be no UTF-8: what is none becomes U+FFFD.
std::string file_text(const OrderedJson& value);

// A member of a list as a place in messages: "x.json: processes[3]".
std::string element(const std::string& list, std::size_t index);

// A value as a message shows it: on one line, in ASCII, cut where it is long.
std::string shown(const OrderedJson& value);

}  // namespace qwen
