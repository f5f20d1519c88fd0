#include "qwen/options.h"

#include <cstdio>

#include "qwen/machine.h"
#include "qwen/parallel.h"
#include "qwen/printable.h"

namespace qwen {

void add_model_options(CLI::App& app, ModelOptions& options) {
  add_model_option(app, options.model);
  app.add_option("--dtype", options.dtype,
                 "convert the matrices to this type; without it they stay as they are stored")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}));
  add_integer(app, "--threads", options.threads, 1, 4096,
              "threads to use; without it as many as there are cores to be had");
}

std::optional<DType> chosen_dtype(const ModelOptions& options) {
  if (options.dtype.empty()) return std::nullopt;
  return dtype_from_name(options.dtype);
}

Model open_model(const ModelOptions& options) {
  if (options.threads > 0) {
    const int threads = set_thread_count(options.threads);
    if (threads < options.threads) {
      std::fprintf(stderr, "%d threads asked for, the system gave %d\n", options.threads, threads);
    }
  } else {
    const DefaultThreads threads = default_threads();
    set_thread_count(threads.count);
    std::fprintf(stderr, "threads: %d (%s)\n", threads.count, threads.reason.c_str());
  }
  Model model = load_model(options.model, chosen_dtype(options));
  for (const std::string& remark : model.remarks) {
    std::fprintf(stderr, "%s\n", on_one_line(remark).c_str());
  }
  return model;
}

}  // namespace qwen
