#include "qwen/config.h"
#include "qwen/json.h"
#include "tests/support.h"

using namespace qwen;

namespace {

// A config that reads, to be changed by the tests.
Json qwen3_5() {
  return parse_json(R"({"model_type":"qwen3_5_text","vocab_size":97,"hidden_size":48,
    "intermediate_size":80,"num_hidden_layers":4,"num_attention_heads":6,"num_key_value_heads":2,
    "head_dim":20,"linear_num_key_heads":3,"linear_num_value_heads":9,"linear_key_head_dim":10,
    "linear_value_head_dim":14,"linear_conv_kernel_dim":4,"eos_token_id":5,
    "rope_parameters":{"rope_theta":1e7,"partial_rotary_factor":0.5}})",
                    "a test");
}

Json changed(const char* key, const Json& value) {
  Json config = qwen3_5();
  config[key] = value;
  return config;
}

Config read_written(const Json& config, const std::string& generation = "") {
  const TempDir folder;
  folder.write("config.json", config.dump());
  if (!generation.empty()) folder.write("generation_config.json", generation);
  return read_config(folder.path());
}

void check_refused(const Json& config, std::string_view part) {
  check_throws_with([&] { read_written(config); }, part);
}

LayerType layer_type(const std::string& name) {
  return name == "full_attention" ? LayerType::full_attention : LayerType::linear_attention;
}

void check_equal(const std::string& name, const Config& config, const Json& expected) {
  const auto same = [&](const char* key, const auto& found) {
    CHECK_MESSAGE(expected[key] == found,
                  name << ": " << key << " is " << Json(found) << ", expected " << expected[key]);
  };
  same("model_type", config.model_type);
  same("vocab_size", config.vocab_size);
  same("hidden_size", config.hidden_size);
  same("intermediate_size", config.intermediate_size);
  same("num_hidden_layers", config.num_hidden_layers);
  same("num_attention_heads", config.num_attention_heads);
  same("num_key_value_heads", config.num_key_value_heads);
  same("head_dim", config.head_dim);
  same("max_position_embeddings", config.max_position_embeddings);
  same("tie_word_embeddings", config.tie_word_embeddings);
  same("rope_theta", config.rope_theta);
  same("partial_rotary_factor", config.partial_rotary_factor);
  CHECK(config.rms_norm_eps == expected["rms_norm_eps"].get<float>());
  if (config.model_type == "qwen3_5_text") {
    same("linear_num_key_heads", config.linear_num_key_heads);
    same("linear_num_value_heads", config.linear_num_value_heads);
    same("linear_key_head_dim", config.linear_key_head_dim);
    same("linear_value_head_dim", config.linear_value_head_dim);
    same("linear_conv_kernel_dim", config.linear_conv_kernel_dim);
  }
  std::vector<LayerType> types;
  for (const Json& type : expected["layer_types"]) types.push_back(layer_type(type));
  CHECK_MESSAGE(config.layer_types == types, name << ": layer_types");
}

}  // namespace

TEST_CASE("config: every field is what the reference's config classes make of the same file") {
  int conflicts = 0;
  for (const Json& row : read_json("configs.json")) {
    const auto name = row["name"].get<std::string>();
    const Config config = read_written(row["config"]);
    check_equal(name, config, row["expected"]);
    conflicts += static_cast<int>(config.remarks.size());
  }
  CHECK(conflicts == 3);  // two keys "at odds", and rope_scaling beside rope_parameters
}

TEST_CASE("config: the checkpoints of every family") {
  const Config tiny = read_config("checkpoints/tiny");
  CHECK(tiny.model_type == "qwen3_5_text");
  CHECK(tiny.norm_is_zero_centred);
  CHECK(tiny.qk_norm);
  CHECK(tiny.attn_output_gate);
  CHECK(rotary_dim(tiny) == 12);  // 0.6 of 20
  CHECK(tiny.eos_token_id == std::vector<int>{1});
  CHECK(tiny.tie_word_embeddings);

  const Config wrapper = read_config("checkpoints/wrapper/model.safetensors");
  CHECK(wrapper.model_type == "qwen3_5_text");
  CHECK(wrapper.hidden_size == 39);
  CHECK(wrapper.mtp_num_hidden_layers == 1);
  CHECK(wrapper.tie_word_embeddings);

  const Config qwen3 = read_config("checkpoints/qwen3");
  CHECK(qwen3.qk_norm);
  CHECK_FALSE(qwen3.norm_is_zero_centred);
  CHECK_FALSE(qwen3.attn_output_gate);
  CHECK(rotary_dim(qwen3) == 16);

  const Config llama = read_config("checkpoints/llama");
  CHECK_FALSE(llama.qk_norm);
  CHECK(llama.head_dim == 12);
  CHECK(llama.linear_num_key_heads == 0);
  for (const Config& config : {tiny, wrapper, qwen3, llama}) CHECK(config.remarks.empty());
}

TEST_CASE("config: a GGUF file has its own, whatever its name") {
  const TempDir folder;
  const std::string path = folder.path() + "/sha256-0123";
  std::filesystem::copy_file("gguf/llama.gguf", path);
  CHECK(read_config(path).hidden_size == read_config("checkpoints/llama").hidden_size);
}

TEST_CASE("config: RoPE parameters at odds are remarked, with the value that counts") {
  Json config = changed("rope_theta", 1e4);
  const Config read = read_written(config);
  REQUIRE(read.remarks.size() == 1);
  CHECK(read.remarks[0].find("rope_theta is 10000.0 at the top level; 10000000.0 in ") !=
        std::string::npos);
  CHECK(read.remarks[0].find("rope_parameters is used") != std::string::npos);
  config["rope_theta"] = 1e7;
  CHECK(read_written(config).remarks.empty());
  config["rope_scaling"] = {{"rope_theta", 5.0}, {"partial_rotary_factor", 0.5}};
  CHECK(read_written(config).remarks.size() == 2);  // with the top level, with rope_parameters
}

TEST_CASE("config: a factor that a family ignores is remarked") {
  Json config = qwen3_5();
  config["model_type"] = "qwen3";
  const Config read = read_written(config);
  CHECK(read.partial_rotary_factor == 1);
  REQUIRE(read.remarks.size() == 1);
  CHECK(read.remarks[0].find("partial_rotary_factor is ignored: qwen3 rotates whole heads") !=
        std::string::npos);
}

TEST_CASE("config: generation ends at any id of both files") {
  CHECK(read_written(qwen3_5()).eos_token_id == std::vector<int>{5});
  CHECK(read_written(qwen3_5(), R"({"eos_token_id":[7,5,9]})").eos_token_id ==
        std::vector<int>{5, 7, 9});
  CHECK(read_written(qwen3_5(), R"({"eos_token_id":6})").eos_token_id == std::vector<int>{5, 6});
  CHECK(read_written(changed("eos_token_id", nullptr), "{}").eos_token_id.empty());
  Json many = Json::array();  // in one pass: 200,000 took 8 seconds
  for (int n = 0; n < 200'000; ++n) many.push_back(n % 100'000);
  CHECK(read_written(changed("eos_token_id", many)).eos_token_id.size() == 100'000);
  check_throws_with([] { read_written(qwen3_5(), R"({"eos_token_id":"x"})"); },
                    "generation_config.json: eos_token_id is \"x\", expected an integer");
}

TEST_CASE(
    "config: whether the head is tied is said in the wrapper, or in the text model's config") {
  Json wrapper = {{"model_type", "qwen3_5"}, {"text_config", qwen3_5()}};
  CHECK_FALSE(read_written(wrapper).tie_word_embeddings);
  wrapper["tie_word_embeddings"] = true;
  CHECK(read_written(wrapper).tie_word_embeddings);
  wrapper["text_config"]["tie_word_embeddings"] = false;
  CHECK_FALSE(read_written(wrapper).tie_word_embeddings);
}

TEST_CASE("config: a count of 0 or 2^31 is named, with the range, before anything is allocated") {
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "head_dim", "linear_num_key_heads",
        "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
        "linear_conv_kernel_dim", "max_position_embeddings", "full_attention_interval"}) {
    for (const Json& value :
         {Json(0), Json(2147483648), Json(-1), Json(1e300), Json("4"), Json(2.5)}) {
      check_refused(changed(key, value), "config.json: " + std::string(key) + " is " +
                                             value.dump() + ", expected an integer from 1 to ");
    }
  }
  check_refused(changed("mtp_num_hidden_layers", -1), "mtp_num_hidden_layers is -1, expected");
}

TEST_CASE("config: a missing key is named") {
  for (const char* key : {"model_type", "vocab_size", "hidden_size", "intermediate_size",
                          "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                          "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
                          "linear_value_head_dim", "linear_conv_kernel_dim"}) {
    Json config = qwen3_5();
    config.erase(key);
    check_refused(config, "config.json: " + std::string(key) + " is missing, expected ");
  }
  check_refused({{"model_type", "qwen3_5"}}, "text_config is missing, expected an object");
  check_refused({{"model_type", "qwen3_5"}, {"text_config", {{"model_type", "llama"}}}},
                "config.json: text_config: vocab_size is missing");
}

TEST_CASE("config: numbers that do not go together are named") {
  check_refused(changed("num_attention_heads", 5),
                "num_attention_heads is 5, expected a multiple of num_key_value_heads = 2");
  check_refused(changed("linear_num_value_heads", 4),
                "linear_num_value_heads is 4, expected a multiple of linear_num_key_heads = 3");
  for (const double factor : {0.0, -0.5, 1.5, 0.05, 0.35}) {
    check_refused(changed("rope_parameters", {{"partial_rotary_factor", factor}}),
                  "expected one that makes an even number of the 20 dimensions of a head rotate");
  }
}

TEST_CASE("config: numbers that are none as a float are named, where they stand") {
  for (const double eps : {-1e-6, -1.0, 1e39}) {
    check_refused(changed("rms_norm_eps", eps),
                  "config.json: rms_norm_eps is " + shown(eps) + ", expected a float from 0");
  }
  for (const Json& theta : {Json(0), Json(-1), Json(1e39), Json(1e-46)}) {
    const std::string said = "rope_theta is " + shown(theta) + ", expected a float above 0";
    check_refused(changed("rope_parameters", {{"rope_theta", theta}}),
                  "config.json: rope_parameters: " + said);
    Json config = changed("rope_theta", theta);
    config.erase("rope_parameters");
    check_refused(config, "config.json: " + said);
  }
}

TEST_CASE("config: layer types are checked against the layers and the family") {
  check_refused(changed("layer_types", {"full_attention"}),
                "layer_types is [\"full_attention\"], expected num_hidden_layers = 4 entries");
  check_refused(changed("layer_types", {"sliding_attention"}),
                "\"sliding_attention\" is unsupported");
  check_refused(changed("layer_types", {1}), "1 is unsupported");
  Json qwen3 = changed("model_type", "qwen3");
  qwen3["layer_types"] = {"linear_attention"};
  check_refused(qwen3, "\"linear_attention\" is unsupported");
  Json sliding = changed("model_type", "qwen3");
  sliding["use_sliding_window"] = true;
  check_refused(sliding, "use_sliding_window is true, expected false");
}

TEST_CASE("config: what we do not run is called unsupported, never read as something else") {
  check_refused(changed("model_type", "qwen3_5_moe_text"),
                "model_type is \"qwen3_5_moe_text\", expected \"qwen3_5\", \"qwen3_5_text\", "
                "\"qwen3\" or \"llama\": others are unsupported");
  check_refused(changed("quantization_config", {{"quant_method", "fp8"}}),
                "quantization_config is {\"quant_method\":\"fp8\"}, expected none: quantised "
                "safetensors are unsupported");
  check_refused({{"model_type", "qwen3_5"},
                 {"quantization_config", {{"bits", 4}}},
                 {"text_config", qwen3_5()}},
                "quantization_config is {\"bits\":4}, expected none");
  check_refused(changed("attention_bias", true), "attention_bias is true, expected false");
  check_refused(changed("mlp_bias", true), "mlp_bias is true, expected false");
  check_refused(changed("hidden_act", "gelu"), "hidden_act is \"gelu\", expected \"silu\"");
  check_refused(
      changed("rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}),
      "rope_scaling: rope_type is \"yarn\", expected \"default\": scaled RoPE is unsupported");
  check_refused(changed("rope_scaling", {{"type", "linear"}, {"factor", 4.0}}),
                "type is \"linear\", expected \"default\"");
  check_refused(changed("rope_parameters", {{"full_attention", {{"rope_theta", 5.0}}}}),
                "RoPE by type of layer is unsupported");
}

TEST_CASE(
    "config: a file that is missing, no JSON, no object, or 100,000 arrays deep is one line") {
  const TempDir folder;
  const auto refused = [&](std::string_view part) {
    check_throws_with([&] { read_config(folder.path()); }, part);
  };
  refused("cannot read " + folder.path() + "/config.json: No such file or directory");
  check_throws_with([&] { read_config(folder.path() + "/none"); },
                    "cannot read " + folder.path() + "/none: No such file or directory");
  folder.write("config.json", "{");
  refused("config.json: not valid JSON");
  folder.write("config.json", "[1]");
  refused("config.json: found [1], expected a JSON object");
  folder.write("config.json",
               R"({"model_type":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}");
  refused("config.json: JSON nested more than 100 deep");
}
