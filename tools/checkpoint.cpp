// Writes a checkpoint of a model's exact shape with random weights.
//
//   build/tools/checkpoint --like qwen3.5-0.8b --out DIR
#include <cstdio>

#include "qwen/printable.h"
#include "qwen/program.h"
#include "qwen/random_model.h"
#include "qwen/save.h"

using namespace qwen;

int main(int argc, char** argv) {
  CLI::App app("A checkpoint of a model's exact shape, with random weights");
  std::string shape, out, dtype = "bf16";
  std::uint64_t seed = 0;
  app.add_option("--like", shape, "the shape")->required()->check(CLI::IsMember(shape_names()));
  app.add_option("--out", out, "the folder to write; it must not exist yet")->required();
  app.add_option("--dtype", dtype, "the type of the matrices")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}))
      ->capture_default_str();
  add_integer(app, "--seed", seed, 0, UINT64_MAX, "another seed gives other weights")
      ->capture_default_str();
  return run_program(app, argc, argv, [&] {
    const RandomModel random = random_model(named_shape(shape), dtype_from_name(dtype), seed);
    save_checkpoint(random.model.config, random.tensors, out);
    std::fprintf(stderr, "%s: %zu tensors\n", on_one_line(out).c_str(), random.tensors.size());
  });
}
