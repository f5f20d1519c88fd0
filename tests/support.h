// What every test needs: comparing tensors, reading references, temporary files.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "qwen/safetensors.h"
#include "qwen/tensor.h"

namespace qwen {

// What sets the two apart: their shapes, or |actual - expected| > tolerance * max |expected|
// somewhere. One line with name, shapes, the worst index, both values there and the largest error;
// empty where they are close.
template <std::size_t Rank>
std::string difference(const std::string& name, const Tensor<Rank>& actual,
                       const Tensor<Rank>& expected, double tolerance);

// The same where every bit counts, those of NaN and the sign of 0 included: the first index at
// which they differ.
template <std::size_t Rank>
std::string bit_difference(const std::string& name, const Tensor<Rank>& actual,
                           const Tensor<Rank>& expected);

// Fails unless there is no difference.
template <std::size_t Rank>
void check_close(const std::string& name, const Tensor<Rank>& actual, const Tensor<Rank>& expected,
                 double tolerance);

// Fails unless there is no bit_difference.
template <std::size_t Rank>
void check_same_bits(const std::string& name, const Tensor<Rank>& actual,
                     const Tensor<Rank>& expected);

// The tensors of a reference file, by name. A missing name or another rank throws.
struct Goldens {
  SafetensorsFile file;

  bool contains(const std::string& name) const;
  std::vector<std::size_t> shape(const std::string& name) const;
  // An F32 tensor of that rank: goldens.tensor<2>("x").
  template <std::size_t Rank>
  Tensor<Rank> tensor(const std::string& name) const;
  // An I64 or I32 tensor of any rank, row-major.
  std::vector<int> ints(const std::string& name) const;
};

Goldens load_goldens(const std::string& path);

// Logarithms of the probabilities that row t of logits [T, vocab_size] stands for, in double.
std::vector<double> log_softmax(const Tensor2& logits, int t);

// Fails unless f throws a std::exception whose message is one line and contains `part`.
void check_throws_with(const std::function<void()>& f, std::string_view part);

// A test input too large for the repository, which tools/test makes: $variable, or `path` in
// build/. Throws, naming the command that makes it, where it is missing.
std::string built_input(const char* variable, const std::string& path, const std::string& command);

// A new folder, removed with all it holds at the end of the scope.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::string path() const { return path_.string(); }
  // Writes a file and returns its path.
  std::string write(const std::string& name, std::string_view bytes) const;

 private:
  std::filesystem::path path_;
};

// The bytes of a safetensors file: the header's length, the header, the data.
std::string safetensors_bytes(std::string_view header, std::string_view data);

}  // namespace qwen
