#include "qwen/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>

#include "qwen/file.h"
#include "qwen/json.h"
#include "qwen/printable.h"

namespace qwen {
namespace {

static_assert(std::endian::native == std::endian::little, "the tensors are used in place");

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMaxHeaderBytes = 100'000'000;  // the reference's limit

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw std::runtime_error(on_one_line(path) + ": " + what);
}

std::string tensor(const std::string& name) {
  return "tensor " + in_quotes(name);
}

// The JSON text between the length and the data section.
std::string_view header_text(const MappedFile& file) {
  if (file.size() < kLengthBytes) {
    fail(file.path(), "found " + std::to_string(file.size()) +
                          " bytes, expected a safetensors file, which starts with the length "
                          "of its header in 8 bytes");
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<std::uint64_t>(file.data()[i]) << 8 * i;
  }
  const std::size_t rest = file.size() - kLengthBytes;
  if (length > kMaxHeaderBytes || length > rest) {
    fail(file.path(), "the header is " + std::to_string(length) + " bytes long, expected at most " +
                          std::to_string(std::min(rest, kMaxHeaderBytes)) +
                          "; the file is cut short or not a safetensors file");
  }
  return text(file).substr(kLengthBytes, length);
}

// Bits of one element; some types share a byte between elements.
std::optional<std::size_t> element_bits(const std::string& dtype) {
  static const std::map<std::string, std::size_t> bits = {
      {"F4", 4},      {"F6_E2M3", 6},     {"F6_E3M2", 6},     {"BOOL", 8}, {"U8", 8},
      {"I8", 8},      {"F8_E4M3", 8},     {"F8_E5M2", 8},     {"F16", 16}, {"BF16", 16},
      {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"U16", 16}, {"I16", 16},
      {"F32", 32},    {"U32", 32},        {"I32", 32},        {"F64", 64}, {"U64", 64},
      {"I64", 64},    {"C64", 64}};
  const auto found = bits.find(dtype);
  return found == bits.end() ? std::nullopt : std::optional(found->second);
}

// A list of sizes, each of which must be a whole number that is not negative.
std::vector<std::size_t> sizes(const JsonObject& entry, const std::string& key) {
  std::vector<std::size_t> result;
  for (const Json& size : entry.array(key)) {
    if (!size.is_number_unsigned()) entry.fail(key, "whole numbers from 0 to 2^64 - 1");
    result.push_back(size.get<std::size_t>());
  }
  return result;
}

// Bytes of a tensor by type and shape; nothing when the number wraps or is not whole.
std::optional<std::size_t> bytes_by_shape(std::size_t bits, const std::vector<std::size_t>& shape) {
  for (const std::size_t size : shape) {
    if (__builtin_mul_overflow(bits, size, &bits)) return std::nullopt;
  }
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

// One member of the header: "name": {"dtype": …, "shape": […], "data_offsets": [begin, end]}.
SafetensorsEntry parse_entry(const std::string& name, const Json& value, const std::string& path) {
  const JsonObject entry(value, path + ": " + tensor(name));
  const std::string dtype = entry.string("dtype");
  const auto bits = element_bits(dtype);
  if (!bits) entry.fail("dtype", "a type of the safetensors format");

  const std::vector<std::size_t> offsets = sizes(entry, "data_offsets");
  if (offsets.size() != 2) entry.fail("data_offsets", "two numbers");

  const std::vector<std::size_t> shape = sizes(entry, "shape");
  const auto size = bytes_by_shape(*bits, shape);
  if (!size) entry.fail("shape", "a shape whose bytes are a whole number below 2^61");
  if (offsets[0] > offsets[1] || offsets[1] - offsets[0] != *size) {
    entry.fail("data_offsets", std::to_string(*size) + " bytes, as dtype and shape say");
  }
  return {name, dtype, shape, offsets[0], offsets[1]};
}

// Strings by name that mean nothing to the format.
void check_metadata(const Json& value, const std::string& path) {
  if (value.is_null()) return;
  const JsonObject metadata(value, path + ": __metadata__");
  for (const auto& [key, entry] : value.items()) {
    if (!entry.is_string()) metadata.fail(key, "a string");
  }
}

// What the reference refuses to find twice: __metadata__ and the fields of an entry. The same entry
// twice it takes.
void check_replaced(const Json& header, const std::vector<Replaced>& all, const std::string& path) {
  for (const auto& [keys, value] : all) {
    const std::string& name = keys[0];
    const bool is_metadata = name == "__metadata__";
    const std::string where = is_metadata ? name : tensor(name);
    if (keys.size() == 1 && (is_metadata || value != header[name])) {
      fail(path, where + " is there twice");
    }
    const bool is_field = keys.size() == 2 && !is_metadata &&
                          (keys[1] == "dtype" || keys[1] == "shape" || keys[1] == "data_offsets");
    if (is_field) fail(path, where + " has two fields " + keys[1]);
  }
}

// The entries of a header, in the order of their bytes.
std::vector<SafetensorsEntry> parse_header(std::string_view header, const std::string& path) {
  std::vector<Replaced> replaced;
  const Json json = parse_json(header, path, replaced);
  if (!json.is_object()) fail(path, "the header is " + shown(json) + ", expected an object");
  check_replaced(json, replaced, path);
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") {
      check_metadata(value, path);
    } else {
      entries.push_back(parse_entry(name, value, path));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  return entries;
}

// Every byte of the data section belongs to exactly one tensor: no holes, no overlaps, no rest.
void check_cover(const SafetensorsFile& file, std::size_t data_bytes) {
  std::size_t covered = 0;
  for (const SafetensorsEntry& entry : file.entries) {
    if (entry.begin != covered) {
      fail(file.path, tensor(entry.name) + " starts at byte " + std::to_string(entry.begin) +
                          " of the data, expected " + std::to_string(covered) +
                          ", where the one before it ends");
    }
    covered = entry.end;
  }
  if (data_bytes < covered) {
    fail(file.path, "cut short: found " + std::to_string(data_bytes) + " bytes of data, expected " +
                        std::to_string(covered) + " by its header; download it again");
  }
  if (data_bytes > covered) {
    fail(file.path, "found " + std::to_string(data_bytes) + " bytes of data, expected " +
                        std::to_string(covered) + ": the last ones belong to no tensor");
  }
}

// The types that weights come in.
std::optional<DType> weight_dtype(const std::string& dtype) {
  if (dtype == "F32") return DType::F32;
  if (dtype == "F16") return DType::F16;
  if (dtype == "BF16") return DType::BF16;
  return std::nullopt;
}

// In the multimodal wrapper the text model is one of several; alone it has shorter names.
std::string text_name(const std::string& name) {
  const std::string wrapped = "model.language_model.";
  return name.starts_with(wrapped) ? "model." + name.substr(wrapped.size()) : name;
}

void add_tensors(const SafetensorsFile& file, Checkpoint& checkpoint) {
  for (const SafetensorsEntry& entry : file.entries) {
    const auto dtype = weight_dtype(entry.dtype);
    if (!dtype) {
      if (entry.name.starts_with("model.visual.")) continue;  // text does not need it
      fail(file.path, tensor(entry.name) + " is " + entry.dtype +
                          ", which is unsupported; expected F32, F16 or BF16");
    }
    const std::string name = text_name(entry.name);
    const auto [place, is_new] = checkpoint.tensors.try_emplace(
        name,
        StoredTensor{name, *dtype, entry.shape, file.data + entry.begin, file.path, file.owner});
    if (!is_new) fail(file.path, tensor(name) + " is also in " + place->second.file);
  }
}

// The shards of an index by name, each with the tensors it should hold.
std::map<std::string, std::set<std::string>> parse_index(const std::string& path) {
  const Json json = read_json(path);
  const JsonObject weight_map = JsonObject(json, path).object("weight_map");
  std::map<std::string, std::set<std::string>> shards;
  for (const auto& [name, value] : json["weight_map"].items()) {
    const std::string shard = weight_map.string(name);
    const bool has_nul = shard.find('\0') != shard.npos;  // it would end the name
    if (shard.empty() || has_nul || std::filesystem::path(shard).filename() != shard) {
      weight_map.fail(name, "the name of a file beside the index");
    }
    shards[shard].insert(name);
  }
  if (shards.empty()) fail(path, "weight_map is empty, expected the names of tensors");
  return shards;
}

}  // namespace

SafetensorsFile read_safetensors(const std::string& path) {
  const auto file = map_file(path);
  const std::string_view header = header_text(*file);
  const std::size_t data_starts = kLengthBytes + header.size();
  SafetensorsFile result{path, parse_header(header, path), file->data() + data_starts, file};
  check_cover(result, file->size() - data_starts);
  return result;
}

Checkpoint open_safetensors(const std::string& path) {
  Checkpoint checkpoint;
  checkpoint.path = path;
  add_tensors(read_safetensors(path), checkpoint);
  return checkpoint;
}

Checkpoint open_safetensors_index(const std::string& path) {
  Checkpoint checkpoint;
  checkpoint.path = path;
  for (auto& [shard, missing] : parse_index(path)) {
    const auto file = read_safetensors(std::filesystem::path(path).replace_filename(shard));
    add_tensors(file, checkpoint);
    for (const SafetensorsEntry& entry : file.entries) missing.erase(entry.name);
    if (!missing.empty()) {
      fail(path, tensor(*missing.begin()) + " is not in " + on_one_line(shard) +
                     ", where it is said to be");
    }
  }
  return checkpoint;
}

}  // namespace qwen
