#include "qwen/save.h"

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <ostream>
#include <stdexcept>

#include "qwen/file.h"
#include "qwen/json.h"

namespace qwen {
namespace {

namespace fs = std::filesystem;

// ---- config.json ----

const char* architecture(const Config& config) {
  if (config.model_type == "qwen3_5_text") return "Qwen3_5ForCausalLM";
  return config.model_type == "qwen3" ? "Qwen3ForCausalLM" : "LlamaForCausalLM";
}

const char* torch_name(DType dtype) {
  return dtype == DType::F32 ? "float32" : dtype == DType::F16 ? "float16" : "bfloat16";
}

// The double with the fewest digits that is this float: 1e-06, where a cast gives 9.99999997…e-07.
double shortest(float value) {
  char digits[32];
  *std::to_chars(digits, digits + sizeof digits - 1, value).ptr = 0;
  return std::strtod(digits, nullptr);
}

// The keys that only Qwen3.5 has.
void add_hybrid_keys(const Config& config, OrderedJson& json) {
  json["layer_types"] = OrderedJson::array();
  for (const LayerType type : config.layer_types) {
    json["layer_types"].push_back(type == LayerType::full_attention ? "full_attention"
                                                                    : "linear_attention");
  }
  json["linear_num_key_heads"] = config.linear_num_key_heads;
  json["linear_num_value_heads"] = config.linear_num_value_heads;
  json["linear_key_head_dim"] = config.linear_key_head_dim;
  json["linear_value_head_dim"] = config.linear_value_head_dim;
  json["linear_conv_kernel_dim"] = config.linear_conv_kernel_dim;
  json["mtp_num_hidden_layers"] = config.mtp_num_hidden_layers;
  // The pairs of a head are shared out among the three axes of a position in a picture.
  const int pairs = rotary_dim(config) / 2;
  json["rope_parameters"]["mrope_section"] = {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3};
  json["rope_parameters"]["mrope_interleaved"] = true;
  json["rope_parameters"]["partial_rotary_factor"] = config.partial_rotary_factor;
}

OrderedJson config_json(const Config& config, DType dtype) {
  OrderedJson json;
  json["architectures"] = {architecture(config)};
  json["model_type"] = config.model_type;
  json["dtype"] = torch_name(dtype);
  json["vocab_size"] = config.vocab_size;
  json["hidden_size"] = config.hidden_size;
  json["intermediate_size"] = config.intermediate_size;
  json["num_hidden_layers"] = config.num_hidden_layers;
  json["num_attention_heads"] = config.num_attention_heads;
  json["num_key_value_heads"] = config.num_key_value_heads;
  json["head_dim"] = config.head_dim;
  json["hidden_act"] = "silu";
  json["rms_norm_eps"] = shortest(config.rms_norm_eps);
  json["max_position_embeddings"] = config.max_position_embeddings;
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  if (!config.eos_token_id.empty()) json["eos_token_id"] = config.eos_token_id.front();
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", config.rope_theta}};
  if (config.model_type == "qwen3_5_text") add_hybrid_keys(config, json);
  return json;
}

// ---- files ----

[[noreturn]] void fail(const fs::path& path, const std::string& reason) {
  throw std::runtime_error(path.string() + ": cannot be written: " + reason);
}

void write_json(const fs::path& path, const OrderedJson& json) {
  write_file(path, [&](std::ostream& file) { file << json.dump(2) << '\n'; });
}

const char* safetensors_name(DType dtype) {
  return dtype == DType::F32 ? "F32" : dtype == DType::F16 ? "F16" : "BF16";
}

std::size_t byte_count(const StoredTensor& tensor) {
  std::size_t count = 1;
  for (const std::size_t size : tensor.shape) count *= size;
  return stored_bytes(tensor.dtype, count);
}

// See safetensors.h for the format.
void write_safetensors(const fs::path& path, const std::vector<StoredTensor>& tensors) {
  OrderedJson::object_t list;
  list.emplace_back("__metadata__", OrderedJson{{"format", "pt"}});
  std::size_t offset = 0;
  for (const StoredTensor& tensor : tensors) {
    const std::size_t end = offset + byte_count(tensor);
    list.emplace_back(tensor.name, OrderedJson{{"dtype", safetensors_name(tensor.dtype)},
                                               {"shape", tensor.shape},
                                               {"data_offsets", {offset, end}}});
    offset = end;
  }
  std::string header = OrderedJson(std::move(list)).dump();
  header.append(63 - (8 + header.size() + 63) % 64, ' ');  // the data starts at a cache line

  write_file(path, [&](std::ostream& file) {
    for (int i = 0; i < 8; ++i) file.put(static_cast<char>(header.size() >> (8 * i)));
    file << header;
    for (const StoredTensor& tensor : tensors) {
      file.write(reinterpret_cast<const char*>(tensor.data),
                 static_cast<std::streamsize>(byte_count(tensor)));
    }
  });
}

// A folder under another name, which is removed again unless it gets its own.
class UnfinishedFolder {
 public:
  explicit UnfinishedFolder(const fs::path& path)
      : path_(path), unfinished_(unfinished_name(path.string())) {
    std::error_code error;
    if (fs::exists(fs::symlink_status(path_))) {  // a link that leads nowhere, too
      fail(path_, "it exists already; remove it or choose another name");
    }
    if (!fs::create_directories(unfinished_, error)) fail(path_, error.message());
  }
  ~UnfinishedFolder() {
    std::error_code ignored;
    fs::remove_all(unfinished_, ignored);
  }
  UnfinishedFolder(const UnfinishedFolder&) = delete;
  UnfinishedFolder& operator=(const UnfinishedFolder&) = delete;

  fs::path operator/(const char* name) const { return unfinished_ / name; }

  void finish() {
    std::error_code error;
    fs::rename(unfinished_, path_, error);
    if (error) fail(path_, error.message());
  }

 private:
  fs::path path_, unfinished_;
};

}  // namespace

void save_checkpoint(const Config& config, const std::vector<StoredTensor>& tensors,
                     const std::string& directory) {
  const DType dtype = tensors.empty() ? DType::F32 : tensors.front().dtype;  // the embedding's
  fs::path path = fs::absolute(directory).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();  // "out/" is "out"
  UnfinishedFolder folder(path);
  write_json(folder / "config.json", config_json(config, dtype));
  write_json(folder / "generation_config.json", {{"eos_token_id", config.eos_token_id}});
  write_safetensors(folder / "model.safetensors", tensors);
  folder.finish();
}

}  // namespace qwen
