// Chapter 15. How fast does this machine run the model, and how fast could it?
//
// First the limits are measured: how fast memory is read, how many multiply-adds a second the cores
// do. Every speed then stands beside the one the limits allow. The questions: how many threads;
// token by token or in chunks; which type for the weights; where a step's time goes; what long
// texts cost, what many of them at once bring, whether drafts pay, and what it costs to wake a
// thread. Speed does not depend on what the weights say, so without --model they are random.
#include <algorithm>
#include <cstdio>
#include <sstream>

#include "qwen/blas_kernel.h"
#include "qwen/counted.h"
#include "qwen/file.h"
#include "qwen/interrupt.h"
#include "qwen/process.h"
#include "qwen/program.h"
#include "qwen/random_model.h"
#include "qwen/report.h"
#include "qwen/speed_batch.h"
#include "qwen/speed_check.h"
#include "qwen/speed_chunk.h"
#include "qwen/speed_context.h"
#include "qwen/speed_dtype.h"
#include "qwen/speed_matrix.h"
#include "qwen/speed_mtp.h"
#include "qwen/speed_ops.h"
#include "qwen/speed_pool.h"
#include "qwen/speed_roofline.h"
#include "qwen/speed_task.h"
#include "qwen/speed_threads.h"

using namespace qwen;

namespace {

struct Part {
  const char* name;
  const char* question;
  std::string (*run)(Speed&);
  bool only_by_name = false;  // not part of what runs without --part
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
    {"device", "which device?", device_part, true},
    {"task", "how fast is one configuration?", task_part, true},
};

bool wanted(const SpeedOptions& options, const Part& part) {
  if (options.parts.empty()) return !part.only_by_name;
  return std::find(options.parts.begin(), options.parts.end(), part.name) != options.parts.end();
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

// Lines that depend on the machine; for the book, with the marks of tools/book.
void print_measured(const SpeedOptions& options, const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::printf(options.book ? "~ [%s]\n" : "%s\n", line.c_str());
  }
  std::fflush(stdout);
}

void print_heading(const SpeedOptions& options, const Speed& speed, const OrderedJson& machine) {
  char text[512];
  std::snprintf(text, sizeof text,
                "model: %s, %.0f million parameters; %s\n"
                "%s run: prefill %s, decode %d; a first run, then up to %d more, shuffled%s\n"
                "load average %.2f\n",
                speed.source.name.c_str(), parameter_count(speed.source.config) / 1e6,
                counted(speed.threads, "thread").c_str(), speed.full ? "full" : "quick",
                counted(speed.prompt, "token").c_str(), speed.steps, speed.rounds.count,
                speed.full ? ", in processes of their own" : "", load_average());
  print_measured(options, describe(machine) + text);
}

void print_part(const SpeedOptions& options, const Part& part, const std::vector<Row>& rows,
                const std::string& conclusion) {
  std::printf("\n%s: %s\n", part.name, part.question);
  print_measured(options, table(rows));
  const auto scattered = [](const Row& row) { return row.scattered; };
  if (std::any_of(rows.begin(), rows.end(), scattered)) {
    print_measured(
        options, "* half of these runs took over 10 % longer than the best: the machine was busy");
  }
  std::istringstream sentences(conclusion);
  for (std::string line; std::getline(sentences, line);) print_measured(options, wrapped(line));
}

// Whether it is one configuration alone, quickly: the part measures the limits beside the task, and
// nothing is checked.
bool is_one_task(const SpeedOptions& options) {
  return options.parts == std::vector<std::string>{"task"};
}

void check(const Speed& speed) {
  check_results(speed.threads);
  std::printf(
      "checked: fast and plain operators, one forward and single tokens, 1 thread and several, "
      "chunks\n");
}

void measure_speed(const SpeedOptions& options) {
  Speed speed = prepare_speed(options);
  OrderedJson meta = record_of(speed.source.name, speed.prompt, speed.steps, speed.rounds.count);
  meta["threads"] = speed.threads;
  std::vector<Section> sections;
  const auto write = [&] {
    if (!options.json.empty()) write_results(options.json, meta, speed.rows);
    if (!options.report.empty()) write_report(options.report, meta, sections, speed.rows);
  };
  for (const std::string& file : {options.json, options.report}) {
    if (!file.empty()) expect_writable(file);
  }
  print_heading(options, speed, meta);
  if (!is_one_task(options)) check(speed);

  for (const Part& part : kParts) {
    const bool is_needed = part.run == roofline_part && !is_one_task(options);
    if (interrupted() || !(is_needed || wanted(options, part))) continue;
    const std::string conclusion = part.run(speed);
    if (!options.book || wanted(options, part)) {
      print_part(options, part, rows_of(speed, part.name), conclusion);
    }
    sections.push_back({part.name, part.question, conclusion});
  }
  meta["load_after"] = load_average();
  meta["interrupted"] = interrupted();
  if (!options.book) std::printf("\nload average %.2f\n", load_average());
  write();
}

// One configuration, for the program that has started this one and has checked the results.
void measure_for_parent(const SpeedOptions& options) {
  end_with_parent();
  Speed speed = prepare_speed(options);
  task_part(speed);
  std::printf("%s", file_text(to_json(speed.rows)).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Chapter 15: how fast this machine runs the model, and how fast it could.");
  SpeedOptions options;
  std::vector<std::string> names;
  for (const Part& part : kParts) names.push_back(part.name);
  add_speed_options(app, options, names);
  return run_program(app, argc, argv, [&] {
    if (options.counts) return print_counts();
    choose_blas_kernel(argv);
    watch_for_interrupt();
    if (options.child) {
      measure_for_parent(options);
    } else if (options.parts == std::vector<std::string>{"matrix"}) {
      measure_matrix(options);
    } else {
      measure_speed(options);
    }
    if (interrupted()) throw std::runtime_error("interrupted: what was finished is above");
  });
}
