#include "qwen/gguf_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string_view>

#include "qwen/file.h"
#include "qwen/printable.h"

namespace qwen {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF numbers are read in place");

constexpr std::uint32_t kHighestRank = 4;
constexpr std::uint64_t kDefaultAlignment = 32;

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw std::runtime_error(path + ": " + why);
}

template <class T>
T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// ---- walking through the header -----------------------------------------------------------

class Reader {
 public:
  explicit Reader(const MappedFile& file) : file_(file) {}

  std::size_t position() const { return position_; }

  // The next `count` elements of `size` bytes; `what` names them for the message.
  const std::byte* take(std::uint64_t count, std::size_t size, const char* what) {
    const std::size_t left = file_.size() - position_;
    if (count > left / size) {
      fail(file_.path(), std::string("the header wants ") + std::to_string(count) + " times " +
                             std::to_string(size) + " bytes of " + what + " at byte " +
                             std::to_string(position_) + ", but the file ends after " +
                             std::to_string(left) + ": it is damaged or cut short");
    }
    const std::byte* start = file_.data() + position_;
    position_ += count * size;
    return start;
  }

  template <class T>
  T number(const char* what) {
    return load<T>(take(1, sizeof(T), what));
  }

  std::string string(const char* what) {
    const auto length = number<std::uint64_t>(what);
    return {reinterpret_cast<const char*>(take(length, 1, what)), length};
  }

  void skip_string(const char* what) { take(number<std::uint64_t>(what), 1, what); }

 private:
  const MappedFile& file_;
  std::size_t position_ = 0;
};

struct MetadataType {
  const char* name;
  std::size_t size;  // bytes of an element; 0 for strings and arrays, whose size differs
};

// By their numbers.
constexpr MetadataType kMetadataTypes[] = {
    {"U8", 1},   {"I8", 1},     {"U16", 2},   {"I16", 2}, {"U32", 4}, {"I32", 4}, {"F32", 4},
    {"Bool", 1}, {"String", 0}, {"Array", 0}, {"U64", 8}, {"I64", 8}, {"F64", 8}};

// 0 for unknown types, too.
std::size_t element_size(GgufType type) {
  const auto index = static_cast<std::size_t>(type);
  return index < std::size(kMetadataTypes) ? kMetadataTypes[index].size : 0;
}

GgufValue read_value(Reader& in, const std::string& path, const std::string& key) {
  GgufValue value{in.number<GgufType>("a value's type")};
  if (value.type == GgufType::Array) {
    value.is_array = true;
    value.type = in.number<GgufType>("an array's type");
    value.count = in.number<std::uint64_t>("an array's length");
  }
  if (value.type == GgufType::String) {
    value.data = in.take(0, 1, "strings");
    for (std::uint64_t i = 0; i < value.count; ++i) in.skip_string("a string");
  } else if (const std::size_t size = element_size(value.type); size != 0) {
    value.data = in.take(value.count, size, "values");
  } else if (value.type == GgufType::Array) {
    fail(path, "metadata " + in_quotes(key) + " is an array of arrays, expected one level");
  } else {
    fail(path, "metadata " + in_quotes(key) + " has type " +
                   std::to_string(static_cast<std::uint32_t>(value.type)) + ", expected 0 to 12");
  }
  return value;
}

GgufTensor read_tensor(Reader& in, const std::string& path, std::uint64_t& offset) {
  GgufTensor tensor;
  tensor.name = in.string("a tensor's name");
  const auto rank = in.number<std::uint32_t>("a rank");
  if (rank == 0 || rank > kHighestRank) {
    fail(path, "tensor " + in_quotes(tensor.name) + " has rank " + std::to_string(rank) +
                   ", expected 1 to " + std::to_string(kHighestRank));
  }
  for (std::uint32_t axis = 0; axis < rank; ++axis) {
    tensor.shape.insert(tensor.shape.begin(), in.number<std::uint64_t>("a shape"));
  }
  tensor.type = in.number<std::uint32_t>("a tensor's type");
  offset = in.number<std::uint64_t>("a tensor's offset");
  return tensor;
}

// ---- what a well-formed file keeps --------------------------------------------------------

void check_start(Reader& in, const std::string& path) {
  const auto* magic = reinterpret_cast<const char*>(in.take(4, 1, "the word GGUF"));
  if (std::string_view(magic, 4) != "GGUF") {
    fail(path, "starts with " + in_quotes(std::string(magic, 4)) + ", expected \"GGUF\"");
  }
  const auto version = in.number<std::uint32_t>("the version");
  if (version == 2 || version == 3) return;
  const std::uint32_t swapped = __builtin_bswap32(version);
  const bool is_big_endian = swapped == 1 || swapped == 2 || swapped == 3;
  fail(path, is_big_endian ? "is a big-endian GGUF file, expected little endian"
                           : "is GGUF version " + std::to_string(version) + ", expected 2 or 3");
}

std::uint64_t alignment(const Gguf& gguf) {
  const auto found = gguf.metadata.find("general.alignment");
  if (found == gguf.metadata.end()) return kDefaultAlignment;
  const GgufValue& stored = found->second;
  if (stored.is_array || stored.type != GgufType::U32) {
    fail(gguf.path, "general.alignment is stored as " + type_name(stored) + ", expected U32");
  }
  const auto value = load<std::uint32_t>(stored.data);
  if (!std::has_single_bit(value)) {
    fail(gguf.path, "general.alignment is " + std::to_string(value) + ", expected a power of two");
  }
  return value;
}

// Bytes of a tensor in a format we know.
std::uint64_t tensor_bytes(const Gguf& gguf, const GgufTensor& tensor, DType dtype) {
  const auto& [name, block_values, block_bytes] = format(dtype);
  if (tensor.shape.back() % block_values != 0) {
    fail(gguf.path, "tensor " + in_quotes(tensor.name) + " has rows of " +
                        std::to_string(tensor.shape.back()) + " numbers, expected a multiple of " +
                        std::to_string(block_values) + ", the block of " + type_name(tensor));
  }
  std::uint64_t bytes = block_bytes;
  for (std::size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    const bool last = axis + 1 == tensor.shape.size();
    const std::uint64_t size = last ? tensor.shape[axis] / block_values : tensor.shape[axis];
    if (size != 0 && bytes > std::numeric_limits<std::uint64_t>::max() / size) {
      fail(gguf.path, "tensor " + in_quotes(tensor.name) + " has more bytes than can be counted");
    }
    bytes *= size;
  }
  return bytes;
}

// Where each tensor lies, relative to the first one: inside the file and apart from the others.
void check_extents(const Gguf& gguf, const std::vector<std::uint64_t>& offsets,
                   std::uint64_t alignment, std::uint64_t size) {
  struct Extent {
    std::uint64_t begin, end;
    const GgufTensor* tensor;
  };
  std::vector<Extent> extents;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const GgufTensor& tensor = gguf.tensors[i];
    const auto dtype = dtype_of(tensor);
    const std::uint64_t bytes = dtype ? tensor_bytes(gguf, tensor, *dtype) : 0;
    if (offsets[i] > size || bytes > size - offsets[i]) {
      fail(gguf.path, "tensor " + in_quotes(tensor.name) + " needs " + std::to_string(bytes) +
                          " bytes from " + std::to_string(offsets[i]) + " on, but there are " +
                          std::to_string(size) + ": the file is damaged or cut short");
    }
    if (offsets[i] % alignment != 0) {
      fail(gguf.path, "tensor " + in_quotes(tensor.name) + " starts at byte " +
                          std::to_string(offsets[i]) + ", expected a multiple of " +
                          std::to_string(alignment) + ", the file's alignment");
    }
    if (bytes != 0) extents.push_back({offsets[i], offsets[i] + bytes, &tensor});
  }
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < extents.size(); ++i) {
    if (extents[i].begin < extents[i - 1].end) {
      fail(gguf.path, "tensors " + in_quotes(extents[i - 1].tensor->name) + " and " +
                          in_quotes(extents[i].tensor->name) + " overlap");
    }
  }
}

void check_names(const Gguf& gguf) {
  std::vector<std::string_view> names;
  for (const auto& tensor : gguf.tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    fail(gguf.path, "two tensors are named " + in_quotes(std::string(*twice)));
}

}  // namespace

Gguf read_gguf(const std::string& path) {
  const auto file = map_file(path);
  Gguf gguf{path, {}, {}, file};
  Reader in(*file);
  check_start(in, path);
  const auto tensor_count = in.number<std::uint64_t>("the number of tensors");
  const auto metadata_count = in.number<std::uint64_t>("the number of metadata entries");
  for (std::uint64_t i = 0; i < metadata_count; ++i) {
    const std::string key = in.string("a key");
    const bool is_new = gguf.metadata.emplace(key, read_value(in, path, key)).second;
    if (!is_new) fail(path, "metadata " + in_quotes(key) + " is there twice");
  }
  std::vector<std::uint64_t> offsets;
  for (std::uint64_t i = 0; i < tensor_count; ++i) {
    gguf.tensors.push_back(read_tensor(in, path, offsets.emplace_back()));
  }
  check_names(gguf);

  const std::uint64_t step = alignment(gguf);
  const std::uint64_t padding = (step - in.position() % step) % step;
  const std::uint64_t start = std::min<std::uint64_t>(in.position() + padding, file->size());
  check_extents(gguf, offsets, step, file->size() - start);
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    gguf.tensors[i].data = file->data() + start + offsets[i];
  }
  return gguf;
}

// ---- formats of tensors -------------------------------------------------------------------

namespace {

// By the number the file gives them; those without a DType are only named.
struct TensorType {
  std::uint32_t number;
  const char* name;
  std::optional<DType> dtype;
};

constexpr TensorType kTensorTypes[] = {
    {0, "F32", DType::F32},
    {1, "F16", DType::F16},
    {2, "Q4_0", DType::Q4_0},
    {3, "Q4_1", DType::Q4_1},
    {6, "Q5_0", DType::Q5_0},
    {7, "Q5_1", DType::Q5_1},
    {8, "Q8_0", DType::Q8_0},
    {9, "Q8_1", {}},
    {10, "Q2_K", {}},
    {11, "Q3_K", {}},
    {12, "Q4_K", DType::Q4_K},
    {13, "Q5_K", DType::Q5_K},
    {14, "Q6_K", DType::Q6_K},
    {15, "Q8_K", {}},
    {16, "IQ2_XXS", {}},
    {17, "IQ2_XS", {}},
    {18, "IQ3_XXS", {}},
    {19, "IQ1_S", {}},
    {20, "IQ4_NL", {}},
    {21, "IQ3_S", {}},
    {22, "IQ2_S", {}},
    {23, "IQ4_XS", {}},
    {24, "I8", {}},
    {25, "I16", {}},
    {26, "I32", {}},
    {27, "I64", {}},
    {28, "F64", {}},
    {29, "IQ1_M", {}},
    {30, "BF16", DType::BF16},
    {34, "TQ1_0", {}},
    {35, "TQ2_0", {}},
    {39, "MXFP4", {}},
    {40, "NVFP4", {}},
    {41, "Q1_0", {}},
    {42, "Q2_0", {}},
};

const TensorType* tensor_type(std::uint32_t number) {
  const auto* type = std::find_if(std::begin(kTensorTypes), std::end(kTensorTypes),
                                  [&](const auto& t) { return t.number == number; });
  return type == std::end(kTensorTypes) ? nullptr : type;
}

}  // namespace

std::string type_name(const GgufValue& value) {
  const std::string name = kMetadataTypes[static_cast<std::size_t>(value.type)].name;
  return value.is_array ? "an array of " + name : name;
}

std::optional<DType> dtype_of(const GgufTensor& tensor) {
  const TensorType* type = tensor_type(tensor.type);
  return type ? type->dtype : std::nullopt;
}

std::string type_name(const GgufTensor& tensor) {
  const TensorType* type = tensor_type(tensor.type);
  return type ? type->name : "type " + std::to_string(tensor.type);
}

}  // namespace qwen
