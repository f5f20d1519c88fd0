#include "qwen/sampling_json.h"

#include <climits>
#include <cstdint>
#include <stdexcept>

namespace qwen {
namespace {

struct Field {
  const char* name;
  double Sampling::*value;
};
constexpr Field kFields[] = {
    {"temperature", &Sampling::temperature},
    {"top_p", &Sampling::top_p},
    {"min_p", &Sampling::min_p},
    {"repetition_penalty", &Sampling::repetition_penalty},
    {"presence_penalty", &Sampling::presence_penalty},
    {"frequency_penalty", &Sampling::frequency_penalty},
};

}  // namespace

OrderedJson to_json(const Sampling& sampling) {
  OrderedJson json = OrderedJson::object();
  for (const Field& field : kFields) json[field.name] = sampling.*field.value;
  json["top_k"] = sampling.top_k;
  json["seed"] = sampling.seed;
  return json;
}

void take_sampling(const JsonObject& object, Sampling& sampling) {
  for (const Field& field : kFields) {
    if (object.has(field.name)) sampling.*field.value = object.number(field.name);
  }
  if (object.has("top_k")) {
    sampling.top_k = static_cast<int>(object.integer("top_k", 0, INT_MAX));
  }
  if (object.has("seed")) {
    const Json& seed = object.value()["seed"];
    if (!seed.is_number_unsigned()) {
      object.fail("seed", "a whole number from 0 to " + std::to_string(UINT64_MAX));
    }
    sampling.seed = seed.get<std::uint64_t>();
  }
}

Sampling sampling_from_json(const OrderedJson& json, const std::string& source) {
  const Json sorted = json;
  Sampling sampling;
  take_sampling(JsonObject(sorted, source), sampling);
  check_sampling(sampling, source);
  return sampling;
}

}  // namespace qwen
