#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "tests/support.h"

#include <stdlib.h>  // mkdtemp

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace qwen {
namespace {

template <class Shape>
std::string bracketed(const Shape& shape) {
  std::ostringstream out;
  out << '[';
  for (std::size_t axis = 0; axis < shape.size(); ++axis) out << (axis ? ", " : "") << shape[axis];
  out << ']';
  return out.str();
}

// [i, j, …] of the element that stands at `position` in memory.
template <std::size_t Rank>
std::string index_of(const Tensor<Rank>& x, std::size_t position) {
  std::array<std::size_t, Rank> index;
  for (std::size_t axis = Rank; axis-- > 0;) {
    index[axis] = position % x.shape(axis);
    position /= x.shape(axis);
  }
  return bracketed(index);
}

template <std::size_t Rank>
std::string shape_difference(const std::string& name, const Tensor<Rank>& actual,
                             const Tensor<Rank>& expected) {
  if (actual.shape() == expected.shape()) return "";
  return name + ": found shape " + bracketed(actual.shape()) + ", expected " +
         bracketed(expected.shape());
}

template <std::size_t Rank>
std::string both_values(const Tensor<Rank>& actual, const Tensor<Rank>& expected,
                        std::size_t position) {
  std::ostringstream out;
  out.precision(9);
  out << bracketed(actual.shape()) << ", at " << index_of(actual, position) << " found "
      << actual.data()[position] << ", expected " << expected.data()[position];
  return out.str();
}

const SafetensorsEntry& find_entry(const SafetensorsFile& file, const std::string& name) {
  for (const SafetensorsEntry& entry : file.entries) {
    if (entry.name == name) return entry;
  }
  throw std::runtime_error(file.path + " has no tensor " + name);
}

template <class Stored>
std::vector<int> read_ints(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  std::vector<int> result;
  for (std::size_t at = entry.begin; at < entry.end; at += sizeof(Stored)) {
    Stored value;
    std::memcpy(&value, file.data + at, sizeof value);
    result.push_back(static_cast<int>(value));
  }
  return result;
}

}  // namespace

template <std::size_t Rank>
std::string difference(const std::string& name, const Tensor<Rank>& actual,
                       const Tensor<Rank>& expected, double tolerance) {
  const std::string shapes = shape_difference(name, actual, expected);
  if (!shapes.empty()) return shapes;
  double largest = 0, worst_error = 0;
  std::size_t worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double found = actual.data()[i], wanted = expected.data()[i];
    if (std::isfinite(wanted)) largest = std::max(largest, std::abs(wanted));
    // Equal infinities are no error; a NaN on either side is the largest there is.
    double error = found == wanted ? 0 : std::abs(found - wanted);
    if (std::isnan(error)) error = INFINITY;
    if (error > worst_error) {
      worst_error = error;
      worst = i;
    }
  }
  if (worst_error <= tolerance * largest) return "";
  std::ostringstream out;
  out << name << " " << both_values(actual, expected, worst) << "; error " << worst_error << " = "
      << worst_error / largest << " * max, allowed " << tolerance;
  return out.str();
}

template <std::size_t Rank>
std::string bit_difference(const std::string& name, const Tensor<Rank>& actual,
                           const Tensor<Rank>& expected) {
  const std::string shapes = shape_difference(name, actual, expected);
  if (!shapes.empty()) return shapes;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::memcmp(actual.data() + i, expected.data() + i, sizeof(float)) == 0) continue;
    return name + " " + both_values(actual, expected, i) + "; the bits differ";
  }
  return "";
}

template <std::size_t Rank>
void check_close(const std::string& name, const Tensor<Rank>& actual, const Tensor<Rank>& expected,
                 double tolerance) {
  const std::string found = difference(name, actual, expected, tolerance);
  CHECK_MESSAGE(found.empty(), found);
}

template <std::size_t Rank>
void check_same_bits(const std::string& name, const Tensor<Rank>& actual,
                     const Tensor<Rank>& expected) {
  const std::string found = bit_difference(name, actual, expected);
  CHECK_MESSAGE(found.empty(), found);
}

bool Goldens::contains(const std::string& name) const {
  return std::any_of(file.entries.begin(), file.entries.end(),
                     [&](const SafetensorsEntry& entry) { return entry.name == name; });
}

std::vector<std::size_t> Goldens::shape(const std::string& name) const {
  return find_entry(file, name).shape;
}

template <std::size_t Rank>
Tensor<Rank> Goldens::tensor(const std::string& name) const {
  const SafetensorsEntry& entry = find_entry(file, name);
  if (entry.dtype != "F32" || entry.shape.size() != Rank) {
    throw std::runtime_error(file.path + ": " + name + " is " + entry.dtype + " " +
                             bracketed(entry.shape) + ", expected F32 of rank " +
                             std::to_string(Rank));
  }
  typename Tensor<Rank>::shape_type shape{};
  std::copy(entry.shape.begin(), entry.shape.end(), shape.begin());
  Tensor<Rank> x(shape);
  std::memcpy(x.data(), file.data + entry.begin, entry.end - entry.begin);
  return x;
}

std::vector<int> Goldens::ints(const std::string& name) const {
  const SafetensorsEntry& entry = find_entry(file, name);
  if (entry.dtype == "I64") return read_ints<std::int64_t>(file, entry);
  if (entry.dtype == "I32") return read_ints<std::int32_t>(file, entry);
  throw std::runtime_error(file.path + ": " + name + " is " + entry.dtype +
                           ", expected I64 or I32");
}

Goldens load_goldens(const std::string& path) {
  return {read_safetensors(path)};
}

std::vector<double> log_softmax(const Tensor2& logits, int t) {
  const float* x = row(logits, t);
  const int V = dim(logits, 1);
  const double highest = *std::max_element(x, x + V);
  double sum = 0;
  for (int i = 0; i < V; ++i) sum += std::exp(x[i] - highest);
  std::vector<double> result(V);
  for (int i = 0; i < V; ++i) result[i] = x[i] - highest - std::log(sum);
  return result;
}

void check_throws_with(const std::function<void()>& f, std::string_view part) {
  try {
    f();
  } catch (const std::exception& error) {
    const std::string message = error.what();
    CHECK_MESSAGE(message.find(part) != std::string::npos,
                  "found the error \"" << message << "\", expected one with \"" << part << "\"");
    CHECK_MESSAGE(message.find('\n') == std::string::npos, "not one line: " << message);
    return;
  }
  FAIL_CHECK("found no error, expected one with \"" << part << "\"");
}

std::string built_input(const char* variable, const std::string& path, const std::string& command) {
  const char* elsewhere = std::getenv(variable);
  const std::string found = elsewhere != nullptr ? elsewhere : "../../build/" + path;
  if (std::filesystem::exists(found)) return found;
  throw std::runtime_error(found + " is missing; run tools/test, or: " + command);
}

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "qwen-test-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot create " + pattern);
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TempDir::write(const std::string& name, std::string_view bytes) const {
  const std::filesystem::path file = path_ / name;
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << bytes;
  return file.string();
}

std::string safetensors_bytes(std::string_view header, std::string_view data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> 8 * i);
  return bytes.append(header).append(data);
}

// The ranks there are.
template std::string difference(const std::string&, const Tensor<1>&, const Tensor<1>&, double);
template std::string bit_difference(const std::string&, const Tensor<1>&, const Tensor<1>&);
template void check_close(const std::string&, const Tensor<1>&, const Tensor<1>&, double);
template void check_same_bits(const std::string&, const Tensor<1>&, const Tensor<1>&);
template Tensor<1> Goldens::tensor(const std::string&) const;
template std::string difference(const std::string&, const Tensor<2>&, const Tensor<2>&, double);
template std::string bit_difference(const std::string&, const Tensor<2>&, const Tensor<2>&);
template void check_close(const std::string&, const Tensor<2>&, const Tensor<2>&, double);
template void check_same_bits(const std::string&, const Tensor<2>&, const Tensor<2>&);
template Tensor<2> Goldens::tensor(const std::string&) const;
template std::string difference(const std::string&, const Tensor<3>&, const Tensor<3>&, double);
template std::string bit_difference(const std::string&, const Tensor<3>&, const Tensor<3>&);
template void check_close(const std::string&, const Tensor<3>&, const Tensor<3>&, double);
template void check_same_bits(const std::string&, const Tensor<3>&, const Tensor<3>&);
template Tensor<3> Goldens::tensor(const std::string&) const;

}  // namespace qwen
