// Chapter 15. How fast does this machine run the model, and how fast could it?
//
// First the limits are measured: how fast memory is read, how many multiply-adds a second the cores
// do. Every speed then stands beside the one the limits allow. The questions: how many threads;
// token by token or in chunks; which type for the weights; where a step's time goes; what long
// texts cost, what many of them at once bring, whether drafts pay, and what it costs to wake a
// thread. Speed does not depend on what the weights say, so without --model they are random.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "qwen/blas_kernel.h"
#include "qwen/interrupt.h"
#include "qwen/machine.h"
#include "qwen/parallel.h"
#include "qwen/program.h"
#include "qwen/random_model.h"
#include "qwen/speed_batch.h"
#include "qwen/speed_check.h"
#include "qwen/speed_chunk.h"
#include "qwen/speed_context.h"
#include "qwen/speed_dtype.h"
#include "qwen/speed_mtp.h"
#include "qwen/speed_ops.h"
#include "qwen/speed_pool.h"
#include "qwen/speed_roofline.h"
#include "qwen/speed_threads.h"

using namespace qwen;

namespace {

struct Part {
  const char* name;
  const char* question;
  std::string (*run)(Speed&);
};
constexpr Part kParts[] = {
    {"roofline", "what could this machine do?", roofline_part},
    {"threads", "how many threads?", threads_part},
    {"chunk", "token by token, or in chunks of 64?", chunk_part},
    {"dtype", "which type for the weights?", dtype_part},
    {"ops", "where does a step's time go?", ops_part},
    {"context", "what does a long text cost?", context_part},
    {"batch", "how many sequences at once?", batch_part},
    {"mtp", "do drafts pay?", mtp_part},
    {"pool", "what does it cost to wake a thread?", pool_part},
};

struct Options {
  std::string model, json;
  std::vector<std::string> parts;
  int threads = 0;
  bool full = false, counts = false;
};

bool wanted(const Options& options, const std::string& part) {
  return options.parts.empty() ||
         std::find(options.parts.begin(), options.parts.end(), part) != options.parts.end();
}

// Bytes and operations, which are the same on every machine.
void print_counts() {
  const Config config = named_shape("qwen3.5-0.8b");
  std::printf("qwen3.5-0.8b: %.0f parameters\n\n", parameter_count(config));
  std::printf("a token after 203 others        f32      bf16\n");
  const Cost f32 = forward_cost(config, DType::F32, 1, 203);
  const Cost bf16 = forward_cost(config, DType::BF16, 1, 203);
  std::printf("  weights, MB            %10.1f%10.1f\n", f32.weight_bytes / 1e6,
              bf16.weight_bytes / 1e6);
  std::printf("  KV, S and conv, MB     %10.1f%10.1f\n", f32.state_bytes / 1e6,
              bf16.state_bytes / 1e6);
  std::printf("  GFLOP                  %10.3f%10.3f\n", f32.operations() / 1e9,
              bf16.operations() / 1e9);
  std::printf("  FLOP for a byte        %10.2f%10.2f\n\n", f32.operations() / f32.bytes(),
              bf16.operations() / bf16.bytes());
  const Cost prompt = forward_cost(config, DType::BF16, 203, 0);
  std::printf("a prompt of 203 tokens: %.1f GFLOP, %.2f a token, %.0f for a byte\n\n",
              prompt.operations() / 1e9, prompt.operations() / 203e9,
              prompt.operations() / prompt.bytes());
  std::printf("multiply-adds of the delta rule, a token and head of 128 x 128:\n");
  std::printf("  token by token   %6.0f\n", recurrent_multiply_adds(128, 128));
  for (const int C : {16, 64, 256}) {
    std::printf("  chunks of %-3d    %6.0f\n", C, chunked_multiply_adds(128, 128, C));
  }
}

Speed prepare(const Options& options) {
  const DefaultThreads threads = default_threads();
  const char* from_environment = std::getenv("QWEN_MODEL");
  const std::string path =
      options.model.empty() && from_environment ? from_environment : options.model;
  Speed speed;
  speed.source = choose_model(path);
  speed.threads = options.threads > 0 ? options.threads : threads.count;
  speed.block = ReadBlock(read_block_bytes(largest_cache(caches()), free_memory()));
  speed.full = options.full;
  if (options.full) {
    speed.steps = 128;
    speed.rounds = {10};
  } else {
    speed.rounds = {3, 50};
  }
  return speed;
}

void print_heading(const Speed& speed, const OrderedJson& machine) {
  std::printf("%s", describe(machine).c_str());
  std::printf("model: %s, %.0f million parameters; %d threads\n", speed.source.name.c_str(),
              parameter_count(speed.source.config) / 1e6, speed.threads);
  std::printf("%s run: prefill %d tokens, decode %d; a first run, then up to %d more, shuffled\n",
              speed.full ? "full" : "quick", speed.prompt, speed.steps, speed.rounds.count);
  std::printf("load average %.2f\n", load_average());
  std::fflush(stdout);
}

void print_part(const Part& part, const std::vector<Row>& rows, const std::string& conclusion) {
  std::printf("\n%s: %s\n%s", part.name, part.question, table(rows).c_str());
  const auto scattered = [](const Row& row) { return row.scattered; };
  if (std::any_of(rows.begin(), rows.end(), scattered)) {
    std::printf(
        "* half of these runs took over 10 %% longer than the best: the machine was busy\n");
  }
  std::printf("%s\n", conclusion.c_str());
  std::fflush(stdout);
}

void measure_speed(const Options& options) {
  watch_for_interrupt();
  OrderedJson meta = machine_record();
  Speed speed = prepare(options);
  meta["model"] = speed.source.name;
  meta["threads"] = speed.threads;
  meta["prompt"] = speed.prompt;
  meta["steps"] = speed.steps;
  meta["load_before"] = load_average();
  if (!options.json.empty()) write_results(options.json, meta, {});  // better to fail now
  print_heading(speed, meta);
  check_results(speed.threads);
  std::printf(
      "checked: fast and plain operators, one forward and single tokens, 1 thread and several, "
      "chunks\n");

  for (const Part& part : kParts) {
    // The limits are needed by everybody.
    if (interrupted() || (!wanted(options, part.name) && part.run != roofline_part)) continue;
    const std::string conclusion = part.run(speed);
    print_part(part, rows_of(speed, part.name), conclusion);
  }
  meta["load_after"] = load_average();
  meta["interrupted"] = interrupted();
  std::printf("\nload average %.2f\n", load_average());
  if (!options.json.empty()) write_results(options.json, meta, speed.rows);
  if (interrupted()) throw std::runtime_error("interrupted: what was finished is above");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Chapter 15: how fast this machine runs the model, and how fast it could.");
  Options options;
  std::vector<std::string> names;
  for (const Part& part : kParts) names.push_back(part.name);
  app.add_option("--model", options.model,
                 "a directory, a .safetensors file or a .gguf file; without it, random weights");
  app.add_option("--part", options.parts, "only these parts")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  app.add_option("--threads", options.threads,
                 "threads to use; without it as many as there are cores to be had")
      ->check(CLI::Range(1, 4096));
  app.add_option("--json", options.json,
                 "write all rows, and what they were measured on, to a file");
  app.add_flag("--full", options.full, "longer texts and more runs: some ten minutes");
  app.add_flag("--counts", options.counts, "only bytes and operations, nothing is timed");
  return run_program(app, argc, argv, [&] {
    if (options.counts) return print_counts();
    choose_blas_kernel(argv);
    measure_speed(options);
  });
}
