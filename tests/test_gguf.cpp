#include <sys/resource.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>

#include "qwen/config.h"
#include "qwen/gguf.h"
#include "qwen/gguf_config.h"
#include "qwen/gguf_metadata.h"
#include "qwen/weights.h"
#include "tests/support.h"

using namespace qwen;

namespace {

// ---- writing files, well-formed and not ----------------------------------------------------

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string text(const std::string& value) {
  return raw<std::uint64_t>(value.size()) + value;
}

// Metadata values: the type, then the value.
std::string typed(GgufType type, const std::string& value) {
  return raw(type) + value;
}
std::string u32(std::uint32_t value) {
  return typed(GgufType::U32, raw(value));
}
std::string f32(float value) {
  return typed(GgufType::F32, raw(value));
}
std::string string(const std::string& value) {
  return typed(GgufType::String, text(value));
}
std::string list(GgufType type, const std::vector<std::string>& values) {
  std::string bytes = typed(GgufType::Array, raw(type) + raw<std::uint64_t>(values.size()));
  for (const auto& value : values) bytes += value;
  return bytes;
}

constexpr std::uint32_t kF32 = 0, kQ2_K = 10, kQ6_K = 14;

struct TensorInfo {
  std::string name;
  std::vector<std::uint64_t> shape;  // as in the file: [cols, rows]
  std::uint32_t type = kF32;
  std::uint64_t offset = 0;
};

struct File {
  std::map<std::string, std::string> metadata;
  std::vector<TensorInfo> tensors;
  std::size_t data = 4096;  // bytes behind the header

  std::string bytes() const {
    std::string file = "GGUF" + raw<std::uint32_t>(3) + raw<std::uint64_t>(tensors.size()) +
                       raw<std::uint64_t>(metadata.size());
    for (const auto& [key, value] : metadata) file += text(key) + value;
    for (const auto& tensor : tensors) {
      file += text(tensor.name) + raw(static_cast<std::uint32_t>(tensor.shape.size()));
      for (const auto size : tensor.shape) file += raw(size);
      file += raw(tensor.type) + raw(tensor.offset);
    }
    file.resize((file.size() + 31) / 32 * 32);
    return file + std::string(data, '\1');
  }
};

// The least that opens: metadata and one tensor for each name, all with the same shape.
File model(const std::string& architecture, std::map<std::string, std::string> sizes,
           const std::vector<std::string>& names) {
  File file;
  file.metadata["general.architecture"] = string(architecture);
  for (const auto& [key, value] : sizes) file.metadata[architecture + "." + key] = value;
  std::uint64_t offset = 0;
  for (const auto& name : names) {
    file.tensors.push_back({name, {7, 5}, kF32, offset});
    offset += 160;
  }
  return file;
}

File llama() {
  return model("llama",
               {{"block_count", u32(2)},
                {"context_length", u32(64)},
                {"embedding_length", u32(24)},
                {"feed_forward_length", u32(40)},
                {"attention.head_count", u32(6)},
                {"attention.head_count_kv", u32(3)},
                {"attention.layer_norm_rms_epsilon", f32(1e-5f)},
                {"rope.freq_base", f32(1e4f)}},
               {"token_embd.weight", "blk.0.attn_q.weight", "blk.1.attn_q.weight"});
}

File qwen35() {
  return model("qwen35",
               {{"block_count", u32(3)},
                {"context_length", u32(64)},
                {"embedding_length", u32(24)},
                {"feed_forward_length", u32(40)},
                {"attention.head_count", u32(6)},
                {"attention.head_count_kv", u32(3)},
                {"attention.key_length", u32(10)},
                {"attention.value_length", u32(10)},
                {"attention.layer_norm_rms_epsilon", f32(1e-6f)},
                {"rope.freq_base", f32(1e7f)},
                {"rope.dimension_count", u32(4)},
                {"ssm.conv_kernel", u32(4)},
                {"ssm.state_size", u32(12)},
                {"ssm.group_count", u32(2)},
                {"ssm.time_step_rank", u32(6)},
                {"ssm.inner_size", u32(90)}},
               {"token_embd.weight", "blk.0.ssm_a", "blk.1.attn_q.weight", "blk.2.attn_q.weight",
                "blk.2.nextn.eh_proj.weight"});
}

// Fails unless reading the file ends in one line that contains `part`.
void check_refused(const std::string& bytes, const std::string& part) {
  const TempDir dir;
  const std::string path = dir.write("m.gguf", bytes);
  CAPTURE(part);
  check_throws_with([&] { open_gguf(path); }, part);
}

void check_config_refused(const File& file, const std::string& part) {
  const TempDir dir;
  const std::string path = dir.write("m.gguf", file.bytes());
  CAPTURE(part);
  check_throws_with([&] { read_gguf_config(path); }, part);
}

Config config_of(const File& file) {
  const TempDir dir;
  return read_gguf_config(dir.write("m.gguf", file.bytes()));
}

Checkpoint checkpoint_of(const File& file) {
  const TempDir dir;
  return open_gguf(dir.write("m.gguf", file.bytes()));
}

// The most memory the process has used, in MB.
double peak_memory() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
  return static_cast<double>(usage.ru_maxrss) / 1e6;
#else
  return static_cast<double>(usage.ru_maxrss) / 1e3;
#endif
}

// ---- from llama.cpp's form back to that of safetensors -------------------------------------

std::vector<float> floats(const StoredTensor& tensor) {
  std::size_t count = 1;
  for (const std::size_t size : tensor.shape) count *= size;
  std::vector<float> values(count);
  to_float(tensor.dtype, tensor.data, count, values.data());
  return values;
}

// Row n of the result is row order[n] of x.
std::vector<float> reordered(const std::vector<float>& x, const std::vector<std::size_t>& order) {
  const std::size_t cols = x.size() / order.size();
  std::vector<float> y;
  for (const std::size_t row : order) {
    y.insert(y.end(), x.begin() + row * cols, x.begin() + (row + 1) * cols);
  }
  return y;
}

std::vector<float> transposed(const std::vector<float>& x, std::size_t rows) {
  const std::size_t cols = x.size() / rows;
  std::vector<float> y;
  for (std::size_t c = 0; c < cols; ++c) {
    for (std::size_t r = 0; r < rows; ++r) y.push_back(x[r * cols + c]);
  }
  return y;
}

// Where the file has row h D + s D/2 + i of the model: see qk_rows_are_interleaved.
std::vector<std::size_t> interleaved(std::size_t heads, std::size_t D) {
  std::vector<std::size_t> order;
  for (std::size_t h = 0; h < heads; ++h) {
    for (std::size_t s = 0; s < 2; ++s) {
      for (std::size_t i = 0; i < D / 2; ++i) order.push_back(h * D + 2 * i + s);
    }
  }
  return order;
}

// Where the file has the `size` rows of every value head, after `first` rows that stand as they
// are: see value_heads_are_tiled.
std::vector<std::size_t> tiled(const Config& config, std::size_t first, std::size_t size) {
  const std::size_t Hk = config.linear_num_key_heads, Hv = config.linear_num_value_heads;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < first; ++i) order.push_back(i);
  for (std::size_t k = 0; k < Hk; ++k) {
    for (std::size_t j = 0; j < Hv / Hk; ++j) {
      for (std::size_t i = 0; i < size; ++i) order.push_back(first + (j * Hk + k) * size + i);
    }
  }
  return order;
}

bool contains(const std::string& name, const char* part) {
  return name.find(part) != std::string::npos;
}

// The numbers of a tensor of a GGUF file as a safetensors file has them, by what
// Checkpoint::conventions says.
std::vector<float> undone(const Conventions& conventions, const Config& config,
                          const StoredTensor& tensor) {
  const std::string& name = tensor.name;
  std::vector<float> x = floats(tensor);
  if (conventions.qk_rows_are_interleaved) {
    const std::size_t D = config.head_dim;
    if (contains(name, "q_proj")) return reordered(x, interleaved(config.num_attention_heads, D));
    if (contains(name, "k_proj")) return reordered(x, interleaved(config.num_key_value_heads, D));
  }
  if (conventions.A_is_exponential && contains(name, "A_log")) {
    for (float& value : x) value = std::log(-value);
  }
  if (conventions.norms_are_shifted && contains(name, "norm") &&
      !contains(name, "linear_attn.norm")) {
    for (float& value : x) value -= 1;
  }
  if (conventions.value_heads_are_tiled && contains(name, "linear_attn.")) {
    const std::size_t Dv = config.linear_value_head_dim;
    const std::size_t qk = 2 * config.linear_num_key_heads * config.linear_key_head_dim;
    if (contains(name, "in_proj_qkv") || contains(name, "conv1d")) {
      return reordered(x, tiled(config, qk, Dv));
    }
    if (contains(name, "in_proj_z")) return reordered(x, tiled(config, 0, Dv));
    if (contains(name, "out_proj")) {
      const std::size_t rows = tensor.shape[0];
      return transposed(reordered(transposed(x, rows), tiled(config, 0, Dv)), x.size() / rows);
    }
    if (!contains(name, "linear_attn.norm")) return reordered(x, tiled(config, 0, 1));
  }
  return x;
}

// 1 + w in float32 is off by up to 2^-24 of 1 + w, log(exp(A)) by a few units in the last place.
constexpr float kRounding = 1e-6f;

std::set<std::string> text_names(const Checkpoint& checkpoint) {
  std::set<std::string> all;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (!name.starts_with("model.visual.")) all.insert(name);
  }
  return all;
}

void check_same_model(const std::string& gguf, const std::string& folder) {
  CAPTURE(gguf);
  const Config config = read_config(folder);
  const Checkpoint actual = open_gguf(gguf), expected = open_checkpoint(folder);
  REQUIRE(text_names(actual) == text_names(expected));
  for (const auto& entry : actual.tensors) {
    const std::string& name = entry.first;
    CAPTURE(name);
    const StoredTensor &tensor = entry.second, &reference = find(expected, name);
    CHECK(tensor.name == name);
    CHECK(tensor.shape == reference.shape);
    const auto x = undone(actual.conventions, config, tensor), y = floats(reference);
    REQUIRE(x.size() == y.size());
    const bool is_exact = !contains(name, "norm") && !contains(name, "A_log");
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float allowed = is_exact ? 0.0f : kRounding * std::max(1.0f, std::abs(y[i]));
      if (!(std::abs(x[i] - y[i]) <= allowed)) {
        FAIL_CHECK("at " << i << " found " << x[i] << ", expected " << y[i]);
        break;
      }
    }
  }
}

void check_same_config(const Config& a, const Config& b) {
  CHECK(a.model_type == b.model_type);
  CHECK(a.vocab_size == b.vocab_size);
  CHECK(a.hidden_size == b.hidden_size);
  CHECK(a.intermediate_size == b.intermediate_size);
  CHECK(a.num_hidden_layers == b.num_hidden_layers);
  CHECK(a.rms_norm_eps == b.rms_norm_eps);
  CHECK(a.tie_word_embeddings == b.tie_word_embeddings);
  CHECK(a.max_position_embeddings == b.max_position_embeddings);
  CHECK(a.num_attention_heads == b.num_attention_heads);
  CHECK(a.num_key_value_heads == b.num_key_value_heads);
  CHECK(a.head_dim == b.head_dim);
  CHECK(a.rope_theta == b.rope_theta);
  CHECK(rotary_dim(a) == rotary_dim(b));
  CHECK(a.linear_num_key_heads == b.linear_num_key_heads);
  CHECK(a.linear_num_value_heads == b.linear_num_value_heads);
  CHECK(a.linear_key_head_dim == b.linear_key_head_dim);
  CHECK(a.linear_value_head_dim == b.linear_value_head_dim);
  CHECK(a.linear_conv_kernel_dim == b.linear_conv_kernel_dim);
  CHECK(a.layer_types == b.layer_types);
  CHECK(a.mtp_num_hidden_layers == b.mtp_num_hidden_layers);
  CHECK(a.norm_is_zero_centred == b.norm_is_zero_centred);
  CHECK(a.qk_norm == b.qk_norm);
  CHECK(a.attn_output_gate == b.attn_output_gate);
}

struct Pair {
  std::string gguf, folder;
};

const Pair kPairs[] = {
    {"gguf/llama.gguf", "checkpoints/llama"},     {"gguf/qwen3.gguf", "checkpoints/qwen3"},
    {"gguf/grouped.gguf", "checkpoints/grouped"}, {"gguf/wrapper.gguf", "checkpoints/wrapper"},
    {"gguf/bf16.gguf", "checkpoints/bf16"},       {"gguf/wild.gguf", "checkpoints/grouped"},
};

}  // namespace

// ---- the same model in both formats --------------------------------------------------------

TEST_CASE("gguf: tensors have the names, shapes and numbers of the safetensors checkpoint") {
  for (const Pair& pair : kPairs) check_same_model(pair.gguf, pair.folder);
}

TEST_CASE("gguf: the config is that of the safetensors checkpoint") {
  for (const Pair& pair : kPairs) {
    CAPTURE(pair.gguf);
    check_same_config(read_gguf_config(pair.gguf), read_config(pair.folder));
  }
}

TEST_CASE("gguf: matrices keep their type, in place") {
  const Checkpoint checkpoint = open_gguf("gguf/bf16.gguf");
  CHECK(find(checkpoint, "model.embed_tokens.weight").dtype == DType::BF16);
  CHECK(find(checkpoint, "model.norm.weight").dtype == DType::F32);
}

TEST_CASE("gguf: conventions follow the architecture") {
  const Conventions llama = open_gguf("gguf/llama.gguf").conventions;
  CHECK(llama.qk_rows_are_interleaved);
  CHECK_FALSE(llama.norms_are_shifted);
  const Conventions qwen3 = open_gguf("gguf/qwen3.gguf").conventions;
  CHECK_FALSE(qwen3.qk_rows_are_interleaved);
  CHECK_FALSE(qwen3.norms_are_shifted);
  CHECK_FALSE(qwen3.A_is_exponential);
  CHECK_FALSE(qwen3.value_heads_are_tiled);
  const Conventions qwen35 = open_gguf("gguf/grouped.gguf").conventions;
  CHECK(qwen35.norms_are_shifted);
  CHECK(qwen35.A_is_exponential);
  CHECK(qwen35.value_heads_are_tiled);
  File untiled = ::qwen35();
  untiled.metadata["qwen35.ssm.v_head_reordered"] = typed(GgufType::Bool, raw<char>(0));
  CHECK_FALSE(checkpoint_of(untiled).conventions.value_heads_are_tiled);
}

TEST_CASE("gguf: generation ends at the named token and at both that end a turn or a text") {
  CHECK(read_gguf_config("gguf/grouped.gguf").eos_token_id == std::vector<int>{1, 0});
}

// ---- files in the wild ---------------------------------------------------------------------

TEST_CASE("gguf: MTP tensors outside of the blocks are left out with a remark") {
  const Checkpoint wild = open_gguf("gguf/wild.gguf");
  REQUIRE(wild.remarks.size() == 1);
  CHECK(contains(wild.remarks[0], "mtp.*"));
  CHECK(open_gguf("gguf/wrapper.gguf").remarks.empty());
  CHECK(read_gguf_config("gguf/wild.gguf").mtp_num_hidden_layers == 0);
  CHECK(read_gguf_config("gguf/wrapper.gguf").mtp_num_hidden_layers == 1);
}

TEST_CASE("gguf: the tensors tell how many layers there are, whatever block_count counts") {
  File file = qwen35();  // layers 0 and 1, and the MTP block 2
  const auto layers = [&](std::uint32_t block_count) {
    file.metadata["qwen35.block_count"] = u32(block_count);
    return config_of(file);
  };
  CHECK(layers(3).num_hidden_layers == 2);
  CHECK(layers(3).mtp_num_hidden_layers == 1);
  CHECK(layers(3).remarks.empty());
  CHECK(layers(2).num_hidden_layers == 2);
  CHECK(layers(2).remarks.empty());
  CHECK(layers(1).num_hidden_layers == 2);
  CHECK(layers(1).remarks.size() == 1);
  file.tensors.resize(3);  // the MTP block taken out
  CHECK(layers(3).num_hidden_layers == 2);
  CHECK(layers(3).mtp_num_hidden_layers == 0);
  file.metadata["qwen35.block_count"] = u32(4);
  check_config_refused(file, "qwen35.block_count is 4, but there are tensors of 2 layers");
}

TEST_CASE("gguf: conv1d has one shape, however it is stored") {
  for (const std::vector<std::uint64_t>& shape :
       {std::vector<std::uint64_t>{4, 9}, {4, 1, 9}, {4, 9, 1}}) {
    File file = qwen35();
    file.tensors = {{"blk.0.ssm_conv1d.weight", shape}};
    const auto checkpoint = checkpoint_of(file);
    CHECK(find(checkpoint, "model.layers.0.linear_attn.conv1d.weight").shape ==
          std::vector<std::size_t>{9, 1, 4});
  }
}

TEST_CASE("gguf: a second embedding and a second head for MTP are left out with a remark") {
  File file = qwen35();
  file.tensors.push_back({"blk.2.nextn.embed_tokens.weight", {7, 5}, kF32, 1600});
  file.tensors.push_back({"blk.2.nextn.shared_head_head.weight", {7, 5}, kF32, 1760});
  const Checkpoint checkpoint = checkpoint_of(file);
  CHECK(checkpoint.remarks.size() == 1);
  CHECK(checkpoint.tensors.size() == 5);
}

TEST_CASE("gguf: a tensor of a picture encoder may have any format") {
  File file = llama();
  file.tensors.push_back({"v.blk.0.ffn_up.weight", {256, 2}, kQ2_K, 640});
  CHECK(checkpoint_of(file).tensors.size() == 3);
}

// ---- metadata ------------------------------------------------------------------------------

TEST_CASE("gguf: metadata come back by key and kind") {
  const Gguf gguf = read_gguf("gguf/grouped.gguf");
  CHECK(find_string(gguf, "general.architecture") == "qwen35");
  CHECK(find_string(gguf, "tokenizer.ggml.pre") == "qwen35");
  CHECK(find_string(gguf, "tokenizer.chat_template") == "{{ messages }}");
  CHECK(find_integer(gguf, "tokenizer.ggml.eos_token_id") == 1);
  CHECK(find_float(gguf, "qwen35.rope.freq_base") == 1e6);
  const auto tokens = find_strings(gguf, "tokenizer.ggml.tokens");
  REQUIRE(tokens->size() == 251);
  CHECK(tokens->at(0) == "<|endoftext|>");
  CHECK(tokens->at(250) == "t250");
  CHECK(find_integers(gguf, "tokenizer.ggml.token_type")->at(2) == 1);
  CHECK(find_strings(gguf, "tokenizer.ggml.merges") == std::vector<std::string>{"t 2", "t 3"});
  CHECK_FALSE(find_string(gguf, "no.such.key"));
  CHECK_FALSE(find_floats(gguf, "no.such.key"));
}

TEST_CASE("gguf: integers of every width and sign are integers, and serve as floats") {
  File file = llama();
  const std::map<std::string, std::string> values = {
      {"u8", typed(GgufType::U8, raw<std::uint8_t>(200))},
      {"i8", typed(GgufType::I8, raw<std::int8_t>(-100))},
      {"u16", typed(GgufType::U16, raw<std::uint16_t>(60000))},
      {"i16", typed(GgufType::I16, raw<std::int16_t>(-30000))},
      {"u32", u32(4000000000)},
      {"i32", typed(GgufType::I32, raw<std::int32_t>(-2000000000))},
      {"u64", typed(GgufType::U64, raw(std::uint64_t{1} << 40))},
      {"i64", typed(GgufType::I64, raw<std::int64_t>(-(std::int64_t{1} << 40)))},
      {"big", typed(GgufType::U64, raw<std::uint64_t>(1ull << 63))},
      {"f64", typed(GgufType::F64, raw(0.1))},
      {"yes", typed(GgufType::Bool, raw<char>(1))},
      {"scores", list(GgufType::F32, {raw(0.5f), raw(-2.0f)})}};
  file.metadata.insert(values.begin(), values.end());
  const TempDir dir;
  const Gguf gguf = read_gguf(dir.write("m.gguf", file.bytes()));
  CHECK(find_integer(gguf, "u8") == 200);
  CHECK(find_integer(gguf, "i8") == -100);
  CHECK(find_integer(gguf, "u16") == 60000);
  CHECK(find_integer(gguf, "i16") == -30000);
  CHECK(find_integer(gguf, "u32") == 4000000000);
  CHECK(find_integer(gguf, "i32") == -2000000000);
  CHECK(find_integer(gguf, "u64") == std::int64_t{1} << 40);
  CHECK(find_integer(gguf, "i64") == -(std::int64_t{1} << 40));
  CHECK(find_float(gguf, "i8") == -100.0);
  CHECK(find_float(gguf, "f64") == 0.1);
  CHECK(find_bool(gguf, "yes") == true);
  CHECK(find_floats(gguf, "scores") == std::vector<double>{0.5, -2.0});
  CHECK(find_integers(gguf, "u8") == std::vector<std::int64_t>{200});
  check_throws_with([&] { find_integer(gguf, "big"); }, "metadata \"big\" is no integer");
  check_throws_with([&] { find_integer(gguf, "f64"); }, "metadata \"f64\" is no integer");
  check_throws_with([&] { find_float(gguf, "scores"); }, "metadata \"scores\" is no number");
  check_throws_with([&] { find_bool(gguf, "u8"); }, "metadata \"u8\" is no boolean");
  check_throws_with([&] { find_string(gguf, "u8"); }, "metadata \"u8\" is no string");
  check_throws_with([&] { find_integers(gguf, "scores"); }, "is no list of integers");
  check_throws_with([&] { find_floats(gguf, "yes"); }, "is no list of numbers");
  check_throws_with([&] { find_strings(gguf, "scores"); }, "is no list of strings");
}

// ---- damaged and foreign files -------------------------------------------------------------

TEST_CASE("gguf: a file that ends anywhere in its header or tensors is refused") {
  const TempDir dir;
  File file = llama();
  file.data = 2 * 160 + 7 * 5 * 4;  // nothing behind the last tensor
  const std::string whole = file.bytes();
  CHECK_NOTHROW(open_gguf(dir.write("whole.gguf", whole)));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string path = dir.write(std::to_string(size) + ".gguf", whole.substr(0, size));
    CAPTURE(size);
    CHECK_THROWS_AS(open_gguf(path), std::runtime_error);
  }
  check_refused(whole.substr(0, whole.size() - 1), "\"blk.1.attn_q.weight\" needs 140 bytes");
  check_refused(whole.substr(0, 100), "the file ends after");
}

TEST_CASE("gguf: a header with one byte changed loads or is refused, in one line") {
  const TempDir dir;
  const std::string whole = qwen35().bytes();
  for (std::size_t at = 0; at + qwen35().data < whole.size(); ++at) {
    for (const int flip : {0x01, 0x80, 0xFF}) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ flip);
      const std::string path = dir.write(std::to_string(at * 256 + flip) + ".gguf", bytes);
      try {
        open_gguf(path);
        read_gguf_config(path);
      } catch (const std::runtime_error& error) {
        CHECK_FALSE(contains(error.what(), "\n"));
      }
    }
  }
}

TEST_CASE("gguf: lengths that no file can hold are refused before memory is taken") {
  const double before = peak_memory();
  const std::string magic = "GGUF" + raw<std::uint32_t>(3);
  const auto counts = [&](std::uint64_t tensors, std::uint64_t metadata) {
    return magic + raw(tensors) + raw(metadata);
  };
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  check_refused(counts(0, 1) + raw(kMost) + "general", "18446744073709551615 times 1 bytes of");
  check_refused(counts(kMost, 0), "a tensor's name");
  check_refused(counts(0, kMost), "a key");

  File file = llama();
  file.metadata["a"] = typed(GgufType::String, raw(kMost - 7) + "abc");
  check_refused(file.bytes(), "of a string");
  file.metadata["a"] = typed(GgufType::Array, raw(GgufType::U64) + raw(std::uint64_t{1} << 61));
  check_refused(file.bytes(), "2305843009213693952 times 8 bytes of values");
  file.metadata["a"] = typed(GgufType::Array, raw(GgufType::String) + raw(kMost));
  check_refused(file.bytes(), "of a string");

  file = llama();
  file.tensors[0].shape = {std::uint64_t{1} << 33, std::uint64_t{1} << 33};
  check_refused(file.bytes(), "\"token_embd.weight\" has more bytes than can be counted");
  file = llama();
  file.tensors[0].offset = kMost - 31;
  check_refused(file.bytes(), "\"token_embd.weight\" needs 140 bytes from 18446744073709551584");
  CHECK(peak_memory() - before < 50);
}

TEST_CASE("gguf: a list of another type, or of more than any vocabulary has, costs no memory") {
  const double before = peak_memory();
  File file = llama();
  const std::string key = "tokenizer.ggml.tokens";
  std::uint64_t count = 8'000'000;
  file.metadata[key] =
      typed(GgufType::Array, raw(GgufType::U8) + raw(count) + std::string(count, '\0'));
  check_config_refused(file,
                       "\"" + key + "\" is no list of strings, it is stored as an array of U8");
  CHECK(peak_memory() - before < 100);  // what the test itself takes; the list would be 256
  count = 4'194'305;
  file.metadata[key] =
      typed(GgufType::Array, raw(GgufType::String) + raw(count) + std::string(8 * count, '\0'));
  check_config_refused(file, "has 4194305 elements, expected at most 4194304");
}

TEST_CASE("gguf: arrays of arrays are refused, however deep") {
  File file = llama();
  std::string nested;
  for (int depth = 0; depth < 200'000; ++depth)
    nested += raw(GgufType::Array) + raw<std::uint64_t>(1);
  file.metadata["deep"] = raw(GgufType::Array) + nested + raw(GgufType::U8) + raw<std::uint64_t>(0);
  const double before = peak_memory();
  check_refused(file.bytes(), "metadata \"deep\" is an array of arrays");
  CHECK(peak_memory() - before < 50);
}

TEST_CASE("gguf: an alignment that is no power of two is refused") {
  for (const std::uint32_t value : {0u, 13u}) {
    File file = llama();
    file.metadata["general.alignment"] = u32(value);
    check_refused(file.bytes(), "general.alignment is " + std::to_string(value));
  }
  File file = llama();
  file.metadata["general.alignment"] = string("32");
  check_refused(file.bytes(), "general.alignment is stored as String, expected U32");
  file.metadata["general.alignment"] = typed(GgufType::I32, raw<std::int32_t>(32));
  check_refused(file.bytes(), "general.alignment is stored as I32, expected U32");
  file.metadata["general.alignment"] = list(GgufType::U32, {raw<std::uint32_t>(32)});
  check_refused(file.bytes(), "general.alignment is stored as an array of U32, expected U32");
  file.metadata["general.alignment"] = u32(64);
  check_refused(file.bytes(), "starts at byte 160, expected a multiple of 64");
}

TEST_CASE("gguf: what is not GGUF of our kind is named") {
  check_refused("", "ends after 0");
  check_refused("PK\3\4 and so on", "starts with \"PK\\x03\\x04\", expected \"GGUF\"");
  check_refused("GGUF" + raw<std::uint32_t>(1) + std::string(16, '\0'), "is GGUF version 1");
  check_refused("GGUF" + raw<std::uint32_t>(0x03000000), "is a big-endian GGUF file");
  check_refused("GGUF" + raw<std::uint32_t>(0), "is GGUF version 0, expected 2 or 3");
  check_refused("GGUF" + raw<std::uint32_t>(0x10000), "is GGUF version 65536, expected 2 or 3");
  check_throws_with([] { open_gguf("gguf/none.gguf"); }, "gguf/none.gguf");

  File file = llama();
  file.metadata["general.architecture"] = string("gemma3");
  check_refused(file.bytes(),
                "general.architecture is \"gemma3\", expected llama, qwen3 or qwen35");
  file.metadata.erase("general.architecture");
  check_refused(file.bytes(), "general.architecture is missing");
  file = llama();
  file.metadata["split.count"] = typed(GgufType::U16, raw<std::uint16_t>(3));
  check_refused(file.bytes(), "is one part of a model split over several files");
  file = llama();
  file.metadata["a"] = raw<std::uint32_t>(13);
  check_refused(file.bytes(), "metadata \"a\" has type 13, expected 0 to 12");
  file = llama();
  file.metadata["a\nb"] = raw<std::uint32_t>(13);
  check_refused(file.bytes(), "metadata \"a\\nb\" has type 13");
}

TEST_CASE("gguf: tensors that cannot be are refused by name") {
  File file = llama();
  file.tensors[1].type = kQ2_K;
  file.tensors[1].shape = {256};
  check_refused(file.bytes(), "\"blk.0.attn_q.weight\" is stored as Q2_K, which is not supported");
  file.tensors[1].type = 41;
  check_refused(file.bytes(), "is stored as Q1_0, which is not supported");
  file.tensors[1].type = 77;
  check_refused(file.bytes(), "is stored as type 77");
  file.tensors[1].type = kQ6_K;
  file.tensors[1].shape = {255, 2};
  check_refused(file.bytes(), "rows of 255 numbers, expected a multiple of 256, the block of Q6_K");

  file = llama();
  file.tensors[1].name = "blk.0.attn_q.bias";
  check_refused(file.bytes(),
                "\"blk.0.attn_q.bias\" is not known in a model of architecture llama");
  file.tensors[1].name = "blk.1.attn_q.weight";
  check_refused(file.bytes(), "two tensors are named \"blk.1.attn_q.weight\"");
  file.tensors[1].name = "blk.3.attn_q.weight";
  check_refused(file.bytes(), "there are no tensors of block 0, but some of block 1");
  file = qwen35();
  file.tensors.push_back({"blk.0.ssm_dt", {5}, kF32, 1600});
  file.tensors.push_back({"blk.0.ssm_dt.bias", {5}, kF32, 1632});
  check_refused(file.bytes(), "two tensors are model.layers.0.linear_attn.dt_bias");
  file = qwen35();
  file.tensors.push_back({"blk.3.attn_q.weight", {5}, kF32, 1600});
  check_refused(file.bytes(), "block 2 has nextn tensors (MTP), expected only in the last block");

  file = llama();
  file.tensors[1].offset = 128;
  check_refused(file.bytes(), "\"token_embd.weight\" and \"blk.0.attn_q.weight\" overlap");
  file.tensors[1].offset = 161;
  check_refused(file.bytes(), "starts at byte 161, expected a multiple of 32");
  file = llama();
  file.tensors[1].shape = {};
  check_refused(file.bytes(), "\"blk.0.attn_q.weight\" has rank 0, expected 1 to 4");
  file.tensors[1].shape = {1, 1, 1, 1, 1};
  check_refused(file.bytes(), "\"blk.0.attn_q.weight\" has rank 5, expected 1 to 4");
}

// ---- metadata out of range -----------------------------------------------------------------

TEST_CASE("gguf: counts of 0 and of 2^31 are refused by key") {
  for (const char* name :
       {"block_count", "context_length", "embedding_length", "feed_forward_length",
        "attention.head_count", "attention.head_count_kv", "attention.key_length",
        "attention.value_length", "rope.dimension_count", "ssm.conv_kernel", "ssm.state_size",
        "ssm.group_count", "ssm.time_step_rank", "ssm.inner_size"}) {
    const std::string key = std::string("qwen35.") + name;
    for (const std::uint32_t value : {0u, 1u << 31}) {
      File file = qwen35();
      file.metadata[key] = u32(value);
      check_config_refused(file, key + " is " + std::to_string(value) + ", expected 1 to ");
    }
  }
}

TEST_CASE("gguf: a missing size is named") {
  for (const char* name : {"block_count", "context_length", "embedding_length",
                           "feed_forward_length", "attention.head_count", "attention.head_count_kv",
                           "attention.layer_norm_rms_epsilon", "ssm.conv_kernel", "ssm.state_size",
                           "ssm.group_count", "ssm.time_step_rank", "ssm.inner_size"}) {
    const std::string key = std::string("qwen35.") + name;
    File file = qwen35();
    file.metadata.erase(key);
    check_config_refused(file, "metadata " + key + " is missing");
  }
  File file = llama();
  file.tensors.erase(file.tensors.begin());
  check_config_refused(file, "tensor token_embd.weight is missing");
}

TEST_CASE("gguf: sizes that do not fit together are named") {
  File file = qwen35();
  file.metadata["qwen35.attention.head_count"] = u32(7);
  check_config_refused(file,
                       "attention.head_count is 7, expected a multiple of "
                       "qwen35.attention.head_count_kv, which is 3");
  file = qwen35();
  file.metadata["qwen35.attention.value_length"] = u32(12);
  check_config_refused(file, "qwen35.attention.value_length is 12, expected 10");
  file = qwen35();
  file.metadata["qwen35.rope.dimension_count"] = u32(3);
  check_config_refused(file, "qwen35.rope.dimension_count is 3, expected an even number up to 10");
  file.metadata["qwen35.rope.dimension_count"] = u32(12);
  check_config_refused(file, "qwen35.rope.dimension_count is 12, expected an even number up to 10");
  file = qwen35();
  file.metadata["qwen35.ssm.time_step_rank"] = u32(5);
  check_config_refused(file,
                       "qwen35.ssm.time_step_rank is 5, expected a multiple of "
                       "qwen35.ssm.group_count, which is 2");
  file = qwen35();
  file.metadata["qwen35.ssm.inner_size"] = u32(91);
  check_config_refused(file,
                       "qwen35.ssm.inner_size is 91, expected a multiple of "
                       "qwen35.ssm.time_step_rank, which is 6");
  file = llama();
  file.metadata["llama.rope.scaling.type"] = string("yarn");
  check_config_refused(file, "llama.rope.scaling.type is \"yarn\", which is not supported");
}

TEST_CASE("gguf: numbers that are none as a float are refused by key") {
  const float infinite = INFINITY;
  for (const float value : {-1.0f, infinite, -infinite, NAN}) {
    for (const char* name : {"attention.layer_norm_rms_epsilon", "rope.freq_base"}) {
      File file = llama();
      file.metadata[std::string("llama.") + name] = f32(value);
      check_config_refused(file, std::string("llama.") + name + " is ");
    }
  }
  File file = llama();
  file.metadata["llama.rope.freq_base"] = f32(0);
  check_config_refused(file, "llama.rope.freq_base is 0, expected a number from 1.17549e-38 to");
  file = llama();
  file.metadata["llama.attention.layer_norm_rms_epsilon"] = typed(GgufType::F64, raw(1e39));
  check_config_refused(file, "epsilon is 1e+39, expected a number from 0 to 3.40282e+38");
}

TEST_CASE("gguf: scaled RoPE is refused where llama.cpp would scale, and only there") {
  const auto with = [](const std::map<std::string, std::string>& values) {
    File file = llama();
    for (const auto& [key, value] : values) file.metadata["llama.rope." + key] = value;
    return file;
  };
  const std::string linear = string("linear"), four = f32(4), one = f32(1);
  check_config_refused(with({{"scale_linear", four}}), "llama.rope.scale_linear is 4, expected 1");
  check_config_refused(with({{"scaling.factor", four}}), "llama.rope.scaling.factor is 4");
  check_config_refused(with({{"scaling.type", linear}, {"scaling.factor", four}}), "factor is 4");
  check_config_refused(with({{"scaling.attn_factor", four}}), "rope.scaling.attn_factor is 4");
  CHECK_NOTHROW(config_of(with({{"scaling.type", string("none")}, {"scaling.factor", four}})));
  CHECK_NOTHROW(config_of(with({{"scaling.type", linear}, {"scaling.factor", f32(0)}})));
  CHECK_NOTHROW(config_of(with({{"scaling.factor", one}, {"scale_linear", four}})));
}

TEST_CASE("gguf: head counts listed by block are one number, zeros aside") {
  const auto counts = [](std::vector<std::uint32_t> values) {
    std::vector<std::string> bytes;
    for (const auto value : values) bytes.push_back(raw(value));
    return list(GgufType::U32, bytes);
  };
  File file = qwen35();
  file.metadata["qwen35.attention.head_count_kv"] = counts({0, 3, 0});
  CHECK(config_of(file).num_key_value_heads == 3);
  file.metadata["qwen35.attention.head_count_kv"] = counts({2, 3, 0});
  check_config_refused(file, "qwen35.attention.head_count_kv differs between blocks");
  file.metadata["qwen35.attention.head_count_kv"] = counts({0, 0, 0});
  check_config_refused(file, "qwen35.attention.head_count_kv is 0 for every block");
}

TEST_CASE(
    "gguf: without rope.dimension_count a whole head turns, without key_length it is "
    "hidden_size / heads") {
  const Config config = config_of(llama());
  CHECK(config.head_dim == 4);
  CHECK(rotary_dim(config) == 4);
}

TEST_CASE("gguf: any even number of rotated dimensions survives as a factor") {
  for (std::uint32_t rotated = 2; rotated <= 44; rotated += 2) {
    File file = qwen35();
    file.metadata["qwen35.attention.key_length"] = u32(44);
    file.metadata["qwen35.attention.value_length"] = u32(44);
    file.metadata["qwen35.rope.dimension_count"] = u32(rotated);
    CHECK(rotary_dim(config_of(file)) == static_cast<int>(rotated));
  }
}
