#include "qwen/gguf_metadata.h"

#include <cstring>
#include <stdexcept>

#include "qwen/printable.h"

namespace qwen {
namespace {

// Reads a Stored at `at` and moves on.
template <class Stored, class T>
bool read(const std::byte*& at, T& out) {
  Stored value;
  std::memcpy(&value, at, sizeof value);
  at += sizeof value;
  out = static_cast<T>(value);
  return true;
}

// Each `next` reads the element at `at`; false when it is not of the kind of `out`.
bool next(GgufType type, const std::byte*& at, std::int64_t& out) {
  if (type == GgufType::U8) return read<std::uint8_t>(at, out);
  if (type == GgufType::I8) return read<std::int8_t>(at, out);
  if (type == GgufType::U16) return read<std::uint16_t>(at, out);
  if (type == GgufType::I16) return read<std::int16_t>(at, out);
  if (type == GgufType::U32) return read<std::uint32_t>(at, out);
  if (type == GgufType::I32) return read<std::int32_t>(at, out);
  if (type == GgufType::I64) return read<std::int64_t>(at, out);
  if (type == GgufType::U64) return read<std::uint64_t>(at, out) && out >= 0;  // or out of range
  return false;
}

bool next(GgufType type, const std::byte*& at, double& out) {
  if (type == GgufType::F32) return read<float>(at, out);
  if (type == GgufType::F64) return read<double>(at, out);
  std::int64_t integer;
  return next(type, at, integer) && (out = static_cast<double>(integer), true);
}

bool next(GgufType type, const std::byte*& at, bool& out) {
  return type == GgufType::Bool && read<std::uint8_t>(at, out);
}

bool next(GgufType type, const std::byte*& at, std::string& out) {
  std::uint64_t length;
  if (type != GgufType::String || !read<std::uint64_t>(at, length)) return false;
  out.assign(reinterpret_cast<const char*>(at), length);
  at += length;
  return true;
}

[[noreturn]] void fail(const Gguf& gguf, const std::string& key, const char* kind) {
  const std::string stored = type_name(gguf.metadata.at(key));
  throw std::runtime_error(gguf.path + ": metadata " + in_quotes(key) + " is no " + kind +
                           ", it is stored as " + stored);
}

template <class T>
std::optional<T> find_one(const Gguf& gguf, const std::string& key, const char* kind) {
  const auto found = gguf.metadata.find(key);
  if (found == gguf.metadata.end()) return std::nullopt;
  const GgufValue& value = found->second;
  T one{};
  const std::byte* at = value.data;
  if (value.is_array || !next(value.type, at, one)) fail(gguf, key, kind);
  return one;
}

// Far more than any vocabulary has of tokens and merges; they take some 40 bytes each.
constexpr std::uint64_t kMostElements = 1 << 22;

template <class T>
std::optional<std::vector<T>> find_list(const Gguf& gguf, const std::string& key,
                                        const char* kind) {
  const auto found = gguf.metadata.find(key);
  if (found == gguf.metadata.end()) return std::nullopt;
  const GgufValue& value = found->second;
  const std::byte* at = value.data;
  T first{};  // of the right type, before memory is taken for all
  if (value.count > 0 && !next(value.type, at, first)) fail(gguf, key, kind);
  if (value.count > kMostElements) {
    throw std::runtime_error(gguf.path + ": metadata " + in_quotes(key) + " has " +
                             std::to_string(value.count) + " elements, expected at most " +
                             std::to_string(kMostElements));
  }
  std::vector<T> list(value.count);
  at = value.data;
  for (T& element : list) {
    if (!next(value.type, at, element)) fail(gguf, key, kind);
  }
  return list;
}

}  // namespace

std::optional<std::int64_t> find_integer(const Gguf& gguf, const std::string& key) {
  return find_one<std::int64_t>(gguf, key, "integer below 2^63");
}

std::optional<double> find_float(const Gguf& gguf, const std::string& key) {
  return find_one<double>(gguf, key, "number");
}

std::optional<bool> find_bool(const Gguf& gguf, const std::string& key) {
  return find_one<bool>(gguf, key, "boolean");
}

std::optional<std::string> find_string(const Gguf& gguf, const std::string& key) {
  return find_one<std::string>(gguf, key, "string");
}

std::optional<std::vector<std::int64_t>> find_integers(const Gguf& gguf, const std::string& key) {
  return find_list<std::int64_t>(gguf, key, "list of integers below 2^63");
}

std::optional<std::vector<double>> find_floats(const Gguf& gguf, const std::string& key) {
  return find_list<double>(gguf, key, "list of numbers");
}

std::optional<std::vector<std::string>> find_strings(const Gguf& gguf, const std::string& key) {
  return find_list<std::string>(gguf, key, "list of strings");
}

}  // namespace qwen
