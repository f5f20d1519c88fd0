#include <cstring>
#include <set>

#include "qwen/weights.h"
#include "tests/support.h"

using namespace qwen;

namespace {

// w [2, 3] in f32 and bf16, v [4] in f16, n [1, 2] — behind `shift` bytes of another tensor.
struct Written {
  TempDir folder;
  std::string path;
  Checkpoint checkpoint;

  explicit Written(int shift = 0) {
    const std::vector<float> w = {1, -2, 0.5f, 3, -0.25f, 6}, v = {0.125f, 2, -3, 4};
    std::string header = "{", data;
    const auto add = [&](const std::string& name, DType dtype, const std::string& written,
                         const std::string& shape, const std::vector<float>& values) {
      const std::size_t begin = data.size();
      data.resize(begin + stored_bytes(dtype, values.size()));
      from_float(values.data(), values.size(), dtype,
                 reinterpret_cast<std::byte*>(data.data()) + begin);
      header += "\"" + name + R"(":{"dtype":")" + written + R"(","shape":)" + shape +
                R"(,"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(data.size()) +
                "]},";
    };
    data = std::string(static_cast<std::size_t>(shift), 'x');
    header += R"("model.visual.x":{"dtype":"U8","shape":[)" + std::to_string(shift) +
              R"(],"data_offsets":[0,)" + std::to_string(shift) + "]},";
    add("f32", DType::F32, "F32", "[2,3]", w);
    add("bf16", DType::BF16, "BF16", "[2,3]", w);
    add("f16", DType::F16, "F16", "[2,1,2]", v);
    header.back() = '}';
    path = folder.write("model.safetensors", safetensors_bytes(header, data));
    checkpoint = open_checkpoint(path);
  }
};

std::vector<float> values(const Weight& w) {
  std::vector<float> all(static_cast<std::size_t>(w.rows) * w.cols);
  for (int n = 0; n < w.rows; ++n) to_float(w.dtype, row(w, n), w.cols, all.data() + n * w.cols);
  return all;
}

const std::vector<float> kValues = {1, -2, 0.5f, 3, -0.25f, 6};

}  // namespace

TEST_CASE("weights: a matrix is a view into the file, in the type it was stored in") {
  const Written written;
  const Weight w = matrix(written.checkpoint, "bf16", 2, 3);
  CHECK(w.dtype == DType::BF16);
  CHECK(w.rows == 2);
  CHECK(w.cols == 3);
  CHECK(w.name == "bf16");
  CHECK(w.data == find(written.checkpoint, "bf16").data);
  CHECK(bytes(w) == 12);
  CHECK(row(w, 1) == w.data + 6);
  CHECK(values(w) == kValues);
}

TEST_CASE("weights: a matrix keeps its file mapped when the checkpoint is gone") {
  Weight w;
  {
    const Written written;
    w = matrix(written.checkpoint, "f32", 2, 3);
  }
  CHECK(values(w) == kValues);
}

TEST_CASE("weights: any address will do") {
  for (int shift = 0; shift < 5; ++shift) {
    const Written written(shift);
    CHECK(values(matrix(written.checkpoint, "f32", 2, 3)) == kValues);
    CHECK(values(matrix(written.checkpoint, "bf16", 2, 3)) == kValues);
    CHECK(values(convert(matrix(written.checkpoint, "bf16", 2, 3), DType::F32)) == kValues);
    CHECK(vector(written.checkpoint, "f16", {2, 1, 2})(3) == 4);
  }
}

TEST_CASE("weights: a vector is copied to floats, whatever its type") {
  const Written written;
  const Tensor1 v = vector(written.checkpoint, "f16", {2, 1, 2});
  CHECK(v.size() == 4);
  CHECK(v(0) == 0.125f);
  CHECK(v(2) == -3);
  CHECK(vector(written.checkpoint, "bf16", {2, 3})(4) == -0.25f);
}

TEST_CASE("weights: a missing tensor and a wrong shape are named, with what was expected") {
  const Written written;
  check_throws_with([&] { find(written.checkpoint, "none"); },
                    written.path + ": tensor none is missing");
  check_throws_with([&] { matrix(written.checkpoint, "f32", 3, 2); },
                    "model.safetensors: f32 is [2, 3], expected [3, 2]");
  check_throws_with([&] { matrix(written.checkpoint, "f16", 2, 2); },
                    "f16 is [2, 1, 2], expected [2, 2]");
  check_throws_with(
      [&] {
        vector(written.checkpoint, "f16", {2, 2});
      },
      "f16 is [2, 1, 2], expected [2, 2]");
}

TEST_CASE("weights: a converted matrix has the rounded values and memory of its own") {
  const Written written;
  const Weight w = matrix(written.checkpoint, "f32", 2, 3);
  for (const DType dtype : {DType::F16, DType::BF16}) {
    const Weight converted = convert(w, dtype);
    CHECK(converted.dtype == dtype);
    CHECK(converted.name == "f32");
    CHECK(bytes(converted) == 12);
    CHECK(values(converted) == kValues);
  }
  CHECK(convert(w, DType::F32).data == w.data);
}

TEST_CASE("weights: rows are read through their order, and converted in it") {
  const Written written;
  Weight w = matrix(written.checkpoint, "f32", 2, 3);
  w.order = std::make_shared<const std::vector<int>>(std::vector<int>{1, 0});
  const std::vector<float> swapped = {3, -0.25f, 6, 1, -2, 0.5f};
  CHECK(values(w) == swapped);
  const Weight converted = convert(w, DType::BF16);
  CHECK(converted.order == nullptr);
  CHECK(values(converted) == swapped);
}

TEST_CASE("weights: a directory, an index and a single file open the same way") {
  CHECK(open_checkpoint("checkpoints/tiny").tensors.size() ==
        open_checkpoint("checkpoints/tiny/model.safetensors").tensors.size());
  const Checkpoint sharded = open_checkpoint("checkpoints/sharded");
  std::set<std::string> files;
  for (const auto& [name, tensor] : sharded.tensors) files.insert(tensor.file);
  CHECK(files.size() == 3);
  CHECK(find(sharded, "model.norm.weight").shape == std::vector<std::size_t>{39});
}

TEST_CASE("weights: the wrapper's tensors have the names of a text model") {
  const Checkpoint wrapper = open_checkpoint("checkpoints/wrapper");
  CHECK(find(wrapper, "model.embed_tokens.weight").shape == std::vector<std::size_t>{263, 39});
  for (const auto& entry : wrapper.tensors) {
    CHECK_MESSAGE(entry.first.find("language_model") == std::string::npos, entry.first);
  }
}

TEST_CASE("weights: a file is told by its first bytes, whatever its name") {
  const TempDir folder;
  const auto copy = [&](const std::string& from, const char* name) {
    const std::string to = folder.path() + "/" + name;
    std::filesystem::copy_file(from, to);
    return open_checkpoint(to).tensors.size();
  };
  const std::size_t in_gguf = open_checkpoint("gguf/llama.gguf").tensors.size();
  for (const char* name : {"sha256-0123", "m.GGUF", "m.safetensors"}) {
    CHECK(copy("gguf/llama.gguf", name) == in_gguf);
  }
  const std::string safetensors = "checkpoints/llama/model.safetensors";
  CHECK(copy(safetensors, "sha256-4567") == open_checkpoint(safetensors).tensors.size());
}

TEST_CASE("weights: what is no checkpoint is refused in one line") {
  const TempDir folder;
  check_throws_with([&] { open_checkpoint(folder.path()); },
                    folder.path() + ": found neither model.safetensors nor");
  check_throws_with([&] { open_checkpoint(folder.path() + "/none"); },
                    "cannot read " + folder.path() + "/none: No such file or directory");
  const std::string other = folder.write("model.bin", "P\nK\x1b");
  check_throws_with(
      [&] { open_checkpoint(other); },
      "model.bin: starts with \"P\\nK\\x1b\", expected a directory, a safetensors file, "
      "or a GGUF file, which starts with \"GGUF\"");
  const std::string long_name(5000, 'a');
  check_throws_with([&] { open_checkpoint(long_name); }, "File name too long");
  check_throws_with([&] { open_checkpoint(folder.path() + "/none.safetensors"); },
                    "cannot read " + folder.path() + "/none.safetensors: No such file");
}
