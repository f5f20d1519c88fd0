#include <cstring>

#include "qwen/json.h"
#include "qwen/safetensors.h"
#include "tests/support.h"

using namespace qwen;

namespace {

const std::string kOne = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";

// Writes a file of that header and data and opens it as a checkpoint.
Checkpoint open_written(const std::string& header, const std::string& data) {
  const TempDir folder;
  return open_safetensors(folder.write("m.safetensors", safetensors_bytes(header, data)));
}

void check_refused(const std::string& header, const std::string& data, std::string_view part) {
  check_throws_with([&] { open_written(header, data); }, part);
}

// A header with one tensor "a" of four bytes with other fields.
std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

// Files of a checkpoint in two shards and its index.
struct Shards {
  TempDir folder;
  std::string index;

  explicit Shards(const std::string& weight_map) {
    folder.write("m-1.safetensors", safetensors_bytes(kOne, "1234"));
    folder.write(
        "m-2.safetensors",
        safetensors_bytes(R"({"b":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}})", "56"));
    index = folder.write("model.safetensors.index.json", weight_map);
  }
};

}  // namespace

TEST_CASE("safetensors: what the reference library takes we take, what it refuses we refuse") {
  const TempDir folder;
  for (const Json& row : read_json("safetensors_cases.json")) {
    const auto name = row["name"].get<std::string>();
    const std::string data(row["data_bytes"].get<std::size_t>(), '\0');
    const std::string path =
        folder.write("m.safetensors", safetensors_bytes(row["header"].get<std::string>(), data));
    bool loads = true;
    try {
      read_safetensors(path);
    } catch (const std::runtime_error& error) {
      loads = false;
      CHECK_MESSAGE(std::string(error.what()).starts_with(path), name << ": " << error.what());
      CHECK_MESSAGE(std::string(error.what()).find('\n') == std::string::npos, name);
    }
    CHECK_MESSAGE(loads == row["loads"].get<bool>(), name);
  }
}

TEST_CASE("safetensors: entries carry name, type, shape and place, in the order of their bytes") {
  const TempDir folder;
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I8","shape":[2,3],"data_offsets":[4,10]},)"
      R"("c":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})";
  const SafetensorsFile file =
      read_safetensors(folder.write("m.safetensors", safetensors_bytes(header, "0123456789")));
  REQUIRE(file.entries.size() == 2);
  CHECK(file.entries[0].name == "c");
  CHECK(file.entries[0].dtype == "BF16");
  CHECK(file.entries[1].name == "b");
  CHECK(file.entries[1].shape == std::vector<std::size_t>{2, 3});
  CHECK(std::memcmp(file.data + file.entries[1].begin, "456789", 6) == 0);
}

TEST_CASE("safetensors: a file too small for its length, or a length too large for its file") {
  const TempDir folder;
  const auto refused = [&](const std::string& bytes, std::string_view part) {
    const std::string path = folder.write("m.safetensors", bytes);
    check_throws_with([&] { read_safetensors(path); }, part);
  };
  refused("", "found 0 bytes, expected a safetensors file");
  refused("1234567", "found 7 bytes, expected a safetensors file");
  const std::string whole = safetensors_bytes("{}", "");
  refused(whole.substr(0, 9), "the header is 2 bytes long, expected at most 1");
  refused(std::string(8, '\xFF') + "{}", "the header is 18446744073709551615 bytes long");
  refused("<!DOCTYPE html>", "not a safetensors file");
}

TEST_CASE("safetensors: a file that was cut is refused, and called so") {
  const TempDir folder;
  const std::string header = entry("F32", "[25,100]", "[0,10000]");
  const std::string whole = safetensors_bytes(header, std::string(10'000, 'x'));
  CHECK(open_safetensors(folder.write("m.safetensors", whole)).tensors.size() == 1);
  for (const std::size_t missing : {std::size_t{1}, std::size_t{4096}, whole.size() / 10}) {
    const std::string path =
        folder.write("m.safetensors", std::string_view(whole).substr(0, whole.size() - missing));
    check_throws_with(
        [&] { open_safetensors(path); },
        "cut short: found " + std::to_string(10'000 - missing) + " bytes of data, expected 10000");
  }
}

TEST_CASE("safetensors: every byte belongs to exactly one tensor") {
  check_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                "1234", "tensor \"b\" starts at byte 0 of the data, expected 4");
  check_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                std::string(12, 'x'), "tensor \"b\" starts at byte 8 of the data, expected 4");
  check_refused(entry("F32", "[1]", "[4,8]"), "12345678",
                "tensor \"a\" starts at byte 4 of the data, expected 0");
  check_refused(kOne, "12345",
                "found 5 bytes of data, expected 4: the last ones belong to no tensor");
}

TEST_CASE("safetensors: a wrong entry is named with what was found and expected") {
  check_refused(kOne + std::string(3, '\0'), "1234", "not valid JSON");
  check_refused("[]", "", "the header is [], expected an object");
  check_refused(R"({"a":7})", "", "tensor \"a\": found 7, expected a JSON object");
  check_refused(R"({"__metadata__":{"k":1}})", "", "__metadata__: k is 1, expected a string");
  check_refused(entry("Q4", "[1]", "[0,4]"), "1234",
                "tensor \"a\": dtype is \"Q4\", expected a type of the safetensors format");
  check_refused(entry("F32", "[-1]", "[0,4]"), "1234", "shape is [-1], expected whole numbers");
  check_refused(entry("F32", "[2]", "[0,4]"), "1234",
                "data_offsets is [0,4], expected 8 bytes, as dtype and shape say");
  check_refused(entry("F32", "[1]", "[4,0]"), "1234", "data_offsets is [4,0], expected 4 bytes");
  check_refused(entry("F32", "[1]", "[0]"), "1234", "data_offsets is [0], expected two numbers");
  check_refused(entry("F32", "[4611686018427387904]", "[0,0]"), "",
                "shape is [4611686018427387904], expected a shape whose bytes");
  check_refused(R"({"a":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}", "",
                "JSON nested more than 100 deep");
  check_refused(R"({"a\nb":7})", "", "tensor \"a\\nb\": found 7");
}

TEST_CASE("safetensors: what the reference refuses to find twice") {
  const std::string fields = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  for (const std::string field :
       {R"("dtype":"F32")", R"("shape":[1])", R"("data_offsets":[0,4])"}) {
    const std::string key = field.substr(1, field.find('"', 1) - 1);
    check_refused("{\"a\":{" + field + "," + fields + "}}", "1234",
                  "tensor \"a\" has two fields " + key);
    check_refused("{\"a\":{" + field + "," + fields + "},\"a\":{" + fields + "}}", "1234",
                  "tensor \"a\" ");
  }
  const std::string entry_a = "\"a\":{" + fields + "}";
  const std::string metadata = R"("__metadata__":{"k":"v"},)";
  check_refused("{" + metadata + metadata + entry_a + "}", "1234", "__metadata__ is there twice");
  check_refused("{" + entry_a + R"(,"a":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}})", "1234",
                "tensor \"a\" is there twice");
  check_refused(R"({"a":7,)" + entry_a + "}", "1234", "tensor \"a\" is there twice");
  // Nobody minds these.
  CHECK_NOTHROW(open_written("{" + entry_a + "," + entry_a + "}", "1234"));
  CHECK_NOTHROW(
      open_written(R"({"__metadata__":{"dtype":"v","dtype":"w"},)" + entry_a + "}", "1234"));
  CHECK_NOTHROW(open_written(R"({"a":{"x":1,"x":2,)" + fields + "}}", "1234"));
}

TEST_CASE("safetensors: types that weights do not come in are unsupported, by name") {
  for (const char* dtype : {"F8_E4M3", "U8", "I8", "BOOL"}) {
    check_refused(entry(dtype, "[4]", "[0,4]"), "1234",
                  "tensor \"a\" is " + std::string(dtype) +
                      ", which is unsupported; expected F32, F16 or BF16");
  }
  check_refused(entry("F64", "[1]", "[0,8]"), "12345678",
                "tensor \"a\" is F64, which is unsupported");
}

TEST_CASE("safetensors: what only pictures need may have any type") {
  const Checkpoint checkpoint =
      open_written(R"({"model.visual.x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                   R"("model.visual.y":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                   "12345678");
  CHECK(checkpoint.tensors.size() == 1);
  CHECK(checkpoint.tensors.contains("model.visual.y"));
}

TEST_CASE("safetensors: the text model inside a wrapper has the names it has alone") {
  const Checkpoint checkpoint = open_written(
      R"({"model.language_model.norm.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("lm_head.weight":{"dtype":"F16","shape":[1,2],"data_offsets":[4,8]}})",
      "12345678");
  REQUIRE(checkpoint.tensors.contains("model.norm.weight"));
  const StoredTensor& norm = checkpoint.tensors.at("model.norm.weight");
  CHECK(norm.name == "model.norm.weight");
  CHECK(norm.dtype == DType::F32);
  CHECK(std::memcmp(norm.data, "1234", 4) == 0);
  CHECK(checkpoint.tensors.at("lm_head.weight").shape == std::vector<std::size_t>{1, 2});
  check_refused(R"({"model.language_model.n":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                R"("model.n":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                "12345678", "tensor \"model.n\" is also in ");
}

TEST_CASE("safetensors: shards are one checkpoint") {
  const Shards shards(R"({"metadata":{"total_size":6},)"
                      R"("weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})");
  const Checkpoint checkpoint = open_safetensors_index(shards.index);
  CHECK(checkpoint.tensors.size() == 2);
  CHECK(checkpoint.tensors.at("b").file == shards.folder.path() + "/m-2.safetensors");
  CHECK(std::memcmp(checkpoint.tensors.at("b").data, "56", 2) == 0);
}

TEST_CASE("safetensors: names of shards that hold anything are refused on one line") {
  const auto refused = [](const std::string& shard, const std::string& part) {
    const Shards shards(Json{{"weight_map", {{"a", shard}}}}.dump());
    check_throws_with([&] { open_safetensors_index(shards.index); }, part);
  };
  using namespace std::string_literals;
  refused("m-1.safetensors\0x"s, "a is \"m-1.safetensors\\u0000x\", expected the name of a file");
  refused("x\n\x1b[31my", "/x\\n\\x1b[31my: No such file or directory");
  refused("../m-1.safetensors", "expected the name of a file beside the index");
  const Shards shards(R"({"weight_map":{"x\ny":7}})");
  check_throws_with([&] { open_safetensors_index(shards.index); },
                    "weight_map: x\\ny is 7, expected a string");
}

TEST_CASE("safetensors: a tensor that the index forgot is there all the same") {
  const Shards shards(R"({"weight_map":{"b":"m-2.safetensors"}})");
  shards.folder.write("m-2.safetensors", safetensors_bytes(kOne, "1234"));
  check_throws_with([&] { open_safetensors_index(shards.index); },
                    "tensor \"b\" is not in m-2.safetensors, where it is said to be");
  shards.folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"m-2.safetensors"}})");
  CHECK(open_safetensors_index(shards.index).tensors.size() == 1);
}

TEST_CASE("safetensors: a wrong index is named") {
  const auto refused = [](const std::string& index, std::string_view part) {
    const Shards shards(index);
    check_throws_with([&] { open_safetensors_index(shards.index); }, part);
  };
  refused("{}", "index.json: weight_map is missing, expected an object");
  refused(R"({"weight_map":{}})", "weight_map is empty");
  refused(R"({"weight_map":{"a":1}})", "weight_map: a is 1, expected a string");
  refused(R"({"weight_map":{"a":"../m-1.safetensors"}})", "expected the name of a file beside");
  refused(R"({"weight_map":{"a":"m-3.safetensors"}})", "m-3.safetensors: No such file");
  refused(R"({"weight_map":{"a":"m-1.safetensors","c":"m-1.safetensors"}})",
          "tensor \"c\" is not in m-1.safetensors");
  refused(std::string(100'000, '['), "JSON nested more than 100 deep");
}

TEST_CASE("safetensors: a shard that was cut is refused, by name") {
  const Shards shards(R"({"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})");
  shards.folder.write("m-1.safetensors", safetensors_bytes(kOne, "123"));
  check_throws_with([&] { open_safetensors_index(shards.index); },
                    "m-1.safetensors: cut short: found 3 bytes of data, expected 4");
}

TEST_CASE("safetensors: the same tensor in two shards is refused") {
  const Shards shards(R"({"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})");
  shards.folder.write("m-2.safetensors",
                      safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                        R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                                        "12345678"));
  check_throws_with([&] { open_safetensors_index(shards.index); },
                    "tensor \"a\" is also in " + shards.folder.path() + "/m-1.safetensors");
}
