#include "qwen/python_text.h"

#include <array>
#include <cassert>
#include <charconv>
#include <cmath>

#include "qwen/utf8.h"

namespace qwen {
namespace {

bool is_stripped(const Utf8& c) {
  if (c.kind != Utf8::Kind::character) return false;
  return is_white_space(c.code_point) || (c.code_point >= 0x1C && c.code_point <= 0x1F);
}

}  // namespace

std::string_view strip(std::string_view text) {
  std::size_t begin = text.size(), end = begin, at = 0;
  while (at < text.size()) {
    const Utf8 c = first_character(text.substr(at));
    if (!is_stripped(c)) {
      if (begin == text.size()) begin = at;
      end = at + c.length;
    }
    at += c.length;
  }
  return text.substr(begin, end - begin);
}

std::string python_float(double value) {
  std::array<char, 32> buffer;  // the longest: -1.2345678901234567e-308
  const auto written = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                     std::chars_format::scientific);
  const std::string_view all(buffer.data(), written.ptr - buffer.data());
  const std::size_t e = all.find('e');
  const int exponent = std::stoi(std::string(all.substr(e + 1)));
  if (exponent < -4 || exponent >= 16) return std::string(all);

  // d.ddde+XX: the sign, the digits without their point, and the point where it belongs.
  std::string number(std::signbit(value) ? "-" : ""), digits;
  for (const char c : all.substr(0, e)) {
    if (c != '.' && c != '-') digits += c;
  }
  if (exponent < 0) return number.append("0.").append(-exponent - 1, '0').append(digits);
  const std::size_t point = exponent + 1;
  if (digits.size() <= point) digits.append(point + 1 - digits.size(), '0');
  return number.append(digits, 0, point).append(".").append(digits, point);
}

std::string python_str(const OrderedJson& scalar) {
  assert(!scalar.is_structured());
  if (scalar.is_string()) return scalar.get<std::string>();
  if (scalar.is_null()) return "None";
  if (scalar.is_boolean()) return scalar.get<bool>() ? "True" : "False";
  return python_json(scalar);
}

std::string python_json(const OrderedJson& value) {
  if (value.is_number_float()) return python_float(value.get<double>());
  if (const auto big = big_integer(value)) return *big;
  if (!value.is_structured()) return value.dump();
  const bool is_object = value.is_object();
  std::string text(is_object ? "{" : "[");
  for (const auto& [key, element] : value.items()) {
    if (text.size() > 1) text += ", ";
    if (is_object) text.append(OrderedJson(key).dump()).append(": ");
    text += python_json(element);
  }
  return text.append(is_object ? "}" : "]");
}

}  // namespace qwen
