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

// Fails unless the shapes are equal and |actual - expected| <= tolerance * max |expected|
// everywhere. Says name, shapes, the worst index, both values there and the largest error.
template <std::size_t Rank>
void check_close(const std::string& name, const Tensor<Rank>& actual, const Tensor<Rank>& expected,
                 double tolerance);

// Fails unless both have the same shape and the same bits, NaN and the sign of 0 included.
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

// Fails unless f throws a std::exception whose message is one line and contains `part`.
void check_throws_with(const std::function<void()>& f, std::string_view part);

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
