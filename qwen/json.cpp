#include "qwen/json.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "qwen/file.h"

namespace qwen {
namespace {

// Real files need less than 10; what goes far beyond would overflow the stack of whoever walks it.
constexpr int kMaxDepth = 100;
// As many members are found one by one in the time that reading a file takes; ten thousand are not.
constexpr int kMaxOrderedMembers = 1000;
constexpr std::size_t kShownLength = 100;

[[noreturn]] void fail_syntax(std::string_view text, std::size_t position,
                              const std::string& source) {
  const auto before = text.substr(0, std::min(position, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  std::string place = "byte " + std::to_string(position);
  // A text of one line may be a line of something longer, whose number its source has.
  if (text.find('\n') != text.npos) place = "line " + std::to_string(line) + " (" + place + ")";
  throw std::runtime_error(source + ": not valid JSON, see " + place);
}

std::string integer_between(std::int64_t lowest, std::int64_t highest) {
  return "an integer from " + std::to_string(lowest) + " to " + std::to_string(highest);
}

bool is_integer_between(const Json& value, std::int64_t lowest, std::int64_t highest) {
  if (!value.is_number_integer()) return false;
  // What is not negative is held as uint64, whose upper half is no int64.
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) return false;
  const auto number = value.get<std::int64_t>();
  return lowest <= number && number <= highest;
}

// Before the library builds anything: how deep the text goes and, where they are looked for one by
// one, how many members an object has, one for each colon. What is no JSON is left to the library.
// (Its own callback would know, but costs the square of a wide object's members.)
void check_size(std::string_view text, bool is_ordered, const std::string& source) {
  std::array<int, kMaxDepth + 1> members{};  // [d]: of the object that is open at depth d
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size() && depth >= 0; ++i) {
    const char c = text[i];
    if (c == '"') in_string = !in_string;
    if (in_string) {
      if (c == '\\') ++i;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) {
        throw std::runtime_error(source + ": JSON nested more than " + std::to_string(kMaxDepth) +
                                 " deep");
      }
      members[depth] = 0;
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (c == ':' && is_ordered && ++members[depth] > kMaxOrderedMembers) {
      throw std::runtime_error(source + ": a JSON object of more than " +
                               std::to_string(kMaxOrderedMembers) + " members");
    }
  }
}

template <class AnyJson>
AnyJson parse(std::string_view text, const std::string& source) {
  check_size(text, std::is_same_v<AnyJson, OrderedJson>, source);
  // The library skips the first and takes the second for the end; other parsers do neither.
  if (text.starts_with("\xEF\xBB\xBF")) {
    throw std::runtime_error(source + ": not valid JSON, it starts with a byte order mark");
  }
  if (const auto zero = text.find('\0'); zero != text.npos) fail_syntax(text, zero + 1, source);
  try {
    return AnyJson::parse(text.begin(), text.end());
  } catch (const typename AnyJson::parse_error& error) {
    fail_syntax(text, error.byte, source);
  } catch (const typename AnyJson::out_of_range&) {
    throw std::runtime_error(source + ": JSON holds a number beyond the range of a double");
  }
}

}  // namespace

Json parse_json(std::string_view text, const std::string& source) {
  return parse<Json>(text, source);
}

OrderedJson parse_ordered_json(std::string_view text, const std::string& source) {
  return parse<OrderedJson>(text, source);
}

Json read_json(const std::string& path) {
  return parse_json(text(*map_file(path)), path);
}

OrderedJson read_ordered_json(const std::string& path) {
  return parse_ordered_json(text(*map_file(path)), path);
}

std::string file_text(const OrderedJson& value) {
  return value.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + '\n';
}

std::string element(const std::string& list, std::size_t index) {
  return list + "[" + std::to_string(index) + "]";
}

std::string shown(const Json& value) {
  // Escaping all but ASCII keeps a cut from splitting a character.
  const std::string whole = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return whole.size() <= kShownLength ? whole : whole.substr(0, kShownLength) + "…";
}

JsonObject::JsonObject(const Json& value, std::string source)
    : value_(&value), source_(std::move(source)) {
  if (!value.is_object()) {
    throw std::runtime_error(source_ + ": found " + shown(value) + ", expected a JSON object");
  }
}

void JsonObject::fail(const std::string& key, const std::string& expected) const {
  const auto found = value_->find(key);
  throw std::runtime_error(source_ + ": " + key + " is " +
                           (found == value_->end() ? "missing" : shown(*found)) + ", expected " +
                           expected);
}

bool JsonObject::has(const std::string& key) const {
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

const Json& JsonObject::member(const std::string& key, const char* expected) const {
  if (!has(key)) fail(key, expected);
  return *value_->find(key);
}

std::string JsonObject::string(const std::string& key) const {
  const Json& value = member(key, "a string");
  if (!value.is_string()) fail(key, "a string");
  return value.get<std::string>();
}

bool JsonObject::boolean(const std::string& key) const {
  const Json& value = member(key, "true or false");
  if (!value.is_boolean()) fail(key, "true or false");
  return value.get<bool>();
}

double JsonObject::number(const std::string& key) const {
  const Json& value = member(key, "a number");
  if (!value.is_number()) fail(key, "a number");
  return value.get<double>();
}

std::int64_t JsonObject::integer(const std::string& key, std::int64_t lowest,
                                 std::int64_t highest) const {
  const std::string expected = integer_between(lowest, highest);
  const Json& value = member(key, expected.c_str());
  if (!is_integer_between(value, lowest, highest)) fail(key, expected);
  return value.get<std::int64_t>();
}

std::vector<std::int64_t> JsonObject::integers(const std::string& key, std::int64_t lowest,
                                               std::int64_t highest) const {
  const std::string expected = integer_between(lowest, highest) + " or a list of them";
  const Json& value = member(key, expected.c_str());
  std::vector<std::int64_t> result;
  for (const Json& element : value.is_array() ? value : Json::array({value})) {
    if (!is_integer_between(element, lowest, highest)) fail(key, expected);
    result.push_back(element.get<std::int64_t>());
  }
  return result;
}

JsonObject JsonObject::object(const std::string& key) const {
  const Json& value = member(key, "an object");
  if (!value.is_object()) fail(key, "an object");
  return JsonObject(value, source_ + ": " + key);
}

const Json& JsonObject::array(const std::string& key) const {
  const Json& value = member(key, "an array");
  if (!value.is_array()) fail(key, "an array");
  return value;
}

}  // namespace qwen
