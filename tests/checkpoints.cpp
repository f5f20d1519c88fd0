#include "tests/checkpoints.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace qwen {
namespace {

using Part = CheckpointParts::Part;

std::string read_text(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string file_of(const std::vector<Part>& tensors, int spaces) {
  std::string header = "{", data;
  for (const Part& part : tensors) {
    std::string shape;
    for (const std::size_t size : part.shape) {
      shape.append(shape.empty() ? "" : ",").append(std::to_string(size));
    }
    header += "\"" + part.name + "\":{\"dtype\":\"" + part.dtype + "\",\"shape\":[" + shape +
              "],\"data_offsets\":[" + std::to_string(data.size()) + ",";
    data += part.bytes;
    header += std::to_string(data.size()) + "]},";
  }
  header.back() = '}';
  return safetensors_bytes(header.append(spaces, ' '), data);
}

}  // namespace

Part& CheckpointParts::at(const std::string& name) {
  for (Part& part : tensors) {
    if (part.name == name) return part;
  }
  throw std::invalid_argument("no tensor " + name);
}

void CheckpointParts::erase(const std::string& name) {
  at(name);
  std::erase_if(tensors, [&](const Part& part) { return part.name == name; });
}

void CheckpointParts::set(const std::string& name, std::size_t index, float value) {
  Part& part = at(name);
  if (part.dtype != "F32") throw std::invalid_argument(name + " is " + part.dtype);
  std::memcpy(part.bytes.data() + index * sizeof value, &value, sizeof value);
}

void CheckpointParts::replace_in_config(const std::string& from, const std::string& to) {
  const std::size_t place = config.find(from);
  if (place == std::string::npos) throw std::invalid_argument("the config has no " + from);
  config.replace(place, from.size(), to);
}

CheckpointParts take_apart(const std::string& name) {
  const std::string folder = "checkpoints/" + name + "/";
  const SafetensorsFile file = read_safetensors(folder + "model.safetensors");
  CheckpointParts parts{read_text(folder + "config.json"), {}};
  for (const SafetensorsEntry& entry : file.entries) {
    const auto* bytes = reinterpret_cast<const char*>(file.data);
    parts.tensors.push_back({entry.name, entry.dtype, entry.shape,
                             std::string(bytes + entry.begin, bytes + entry.end)});
  }
  return parts;
}

std::string write_checkpoint(const TempDir& folder, const CheckpointParts& parts, int spaces) {
  folder.write("config.json", parts.config);
  folder.write("model.safetensors", file_of(parts.tensors, spaces));
  return folder.path();
}

std::string write_shards(const TempDir& folder, const CheckpointParts& parts, int shards) {
  folder.write("config.json", parts.config);
  std::string map;
  for (int shard = 0; shard < shards; ++shard) {
    const std::string file = "model-" + std::to_string(shard) + ".safetensors";
    std::vector<Part> own;
    for (std::size_t i = shard; i < parts.tensors.size(); i += shards) {
      own.push_back(parts.tensors[i]);
      map.append(map.empty() ? "" : ",").append("\"" + own.back().name + "\":\"" + file + "\"");
    }
    folder.write(file, file_of(own, shard));
  }
  folder.write("model.safetensors.index.json", "{\"metadata\":{},\"weight_map\":{" + map + "}}");
  return folder.path();
}

}  // namespace qwen
