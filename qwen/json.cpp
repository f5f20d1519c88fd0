#include "qwen/json.h"

#include <algorithm>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "qwen/file.h"
#include "qwen/printable.h"

namespace qwen {
namespace {

// Real files need less than 10; what goes far beyond would overflow the stack of whoever walks it.
constexpr std::size_t kMaxDepth = 100;
// As many members are found one by one in the time that reading a file takes; ten thousand are not.
constexpr std::size_t kMaxOrderedMembers = 1000;
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

// Builds a value from what the library's reader tells, one piece after the other.
template <class AnyJson>
class Builder {
 public:
  Builder(std::string_view text, const std::string& source, std::vector<Replaced>* replaced)
      : text_(text), source_(source), replaced_(replaced) {}

  AnyJson take() { return std::move(root_); }

  // ---- what the library calls; false would end it ----
  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(std::int64_t value) { return put(value); }
  bool number_unsigned(std::uint64_t value) { return put(value); }
  bool number_float(double value, const std::string& written) {
    const bool is_integer = written.find_first_of(".eE") == written.npos;
    if (is_integer && is_ordered) return put(AnyJson::binary({written.begin(), written.end()}));
    return put(value);
  }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(typename AnyJson::binary_t&) { return false; }  // not in JSON
  bool start_object(std::size_t) { return open(AnyJson::object()); }
  bool start_array(std::size_t) { return open(AnyJson::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& key) {
    Level& level = open_.back();
    auto& members = level.container->template get_ref<typename AnyJson::object_t&>();
    const auto [member, is_new] = members.emplace(key, nullptr);
    level.next = &member->second;
    if (is_ordered && members.size() > kMaxOrderedMembers) {
      throw std::runtime_error(source_ + ": a JSON object of more than " +
                               std::to_string(kMaxOrderedMembers) + " members");
    }
    level.key = std::move(key);
    if (!is_new && replaced_ != nullptr) replaced_->push_back({path(), *level.next});
    return true;
  }

  template <class Error>
  bool parse_error(std::size_t position, const std::string&, const Error& error) {
    constexpr int kNumberOverflow = 406;
    if (error.id != kNumberOverflow) fail_syntax(text_, position, source_);
    throw std::runtime_error(source_ + ": JSON holds a number beyond the range of a double");
  }

 private:
  static constexpr bool is_ordered = std::is_same_v<AnyJson, OrderedJson>;

  // An object or array whose end has not come yet.
  struct Level {
    AnyJson* container;
    std::string key;          // of an object: the member that is read
    AnyJson* next = nullptr;  // … and where it belongs
  };

  AnyJson& place() {
    if (open_.empty()) return root_;
    Level& level = open_.back();
    return level.next != nullptr ? *level.next : level.container->emplace_back();
  }

  bool put(AnyJson value) {
    place() = std::move(value);
    return true;
  }

  bool open(AnyJson empty) {
    if (open_.size() == kMaxDepth) {
      throw std::runtime_error(source_ + ": JSON nested more than " + std::to_string(kMaxDepth) +
                               " deep");
    }
    AnyJson& container = place();
    container = std::move(empty);
    open_.push_back({&container, "", nullptr});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::vector<std::string> path() const {
    std::vector<std::string> keys;
    for (const Level& level : open_) keys.push_back(level.key);
    return keys;
  }

  std::string_view text_;
  const std::string& source_;
  std::vector<Replaced>* replaced_;  // null where nobody asks
  AnyJson root_;
  std::vector<Level> open_;
};

template <class AnyJson>
AnyJson parse(std::string_view text, const std::string& source,
              std::vector<Replaced>* replaced = nullptr) {
  // The library skips the first and takes the second for the end; other parsers do neither.
  if (text.starts_with("\xEF\xBB\xBF")) {
    throw std::runtime_error(source + ": not valid JSON, it starts with a byte order mark");
  }
  if (const auto zero = text.find('\0'); zero != text.npos) fail_syntax(text, zero + 1, source);
  Builder<AnyJson> builder(text, source, replaced);
  AnyJson::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

// Appends a value that is neither an object nor an array.
void write_scalar(const OrderedJson& value, bool ascii, std::string& out) {
  const auto big = big_integer(value);
  out += big ? *big : value.dump(-1, ' ', ascii, OrderedJson::error_handler_t::replace);
}

// Appends a value that stands so many levels deep.
void write(const OrderedJson& value, int indent, bool ascii, int depth, std::string& out) {
  if (!value.is_structured()) return write_scalar(value, ascii, out);
  const auto new_line = [&](int levels) {
    if (indent >= 0 && !value.empty()) out.append("\n").append(indent * levels, ' ');
  };
  const bool is_object = value.is_object();
  bool is_first = true;
  out += is_object ? '{' : '[';
  for (const auto& [key, element] : value.items()) {
    if (!is_first) out += ',';
    is_first = false;
    new_line(depth + 1);
    if (is_object) {
      write_scalar(key, ascii, out);
      out += indent >= 0 ? ": " : ":";
    }
    write(element, indent, ascii, depth + 1, out);
  }
  new_line(depth);
  out += is_object ? '}' : ']';
}

}  // namespace

Json parse_json(std::string_view text, const std::string& source) {
  return parse<Json>(text, source);
}

OrderedJson parse_ordered_json(std::string_view text, const std::string& source) {
  return parse<OrderedJson>(text, source);
}

Json parse_json(std::string_view text, const std::string& source, std::vector<Replaced>& replaced) {
  return parse<Json>(text, source, &replaced);
}

Json read_json(const std::string& path) {
  return parse_json(text(*map_file(path)), path);
}

OrderedJson read_ordered_json(const std::string& path) {
  return parse_ordered_json(text(*map_file(path)), path);
}

std::optional<std::string> big_integer(const OrderedJson& value) {
  if (!value.is_binary()) return std::nullopt;
  const auto& digits = value.get_binary();
  return std::string(digits.begin(), digits.end());
}

std::string json_text(const OrderedJson& value, int indent) {
  std::string text;
  write(value, indent, false, 0, text);
  return text;
}

std::string file_text(const OrderedJson& value) {
  return json_text(value, 2) + '\n';
}

std::string element(const std::string& list, std::size_t index) {
  return list + "[" + std::to_string(index) + "]";
}

std::string shown(const OrderedJson& value) {
  std::string whole;
  write(value, -1, true, 0, whole);  // in ASCII: a cut splits no character
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
  throw std::runtime_error(source_ + ": " + on_one_line(key) + " is " +
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
  if (const auto big = big_integer(value)) return std::stod(*big);
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
