// The options of the speed chapter: what is measured, how often, and where the results go.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "qwen/program.h"
#include "qwen/speed.h"

namespace qwen {

struct SpeedOptions {
  std::vector<std::string> parts;           // empty: all that need not be asked for
  std::vector<std::string> models, dtypes;  // of the part `matrix` any number, else one at most
  std::vector<std::string> devices = {"cpu"};
  std::vector<int> threads;                // empty: default_threads()
  std::optional<int> prompt, steps, runs;  // of the task, and besides run 0
  std::string json, report;                // files to write; empty: none
  bool full = false, counts = false;
  bool child = false;  // started by another: see run_process
  bool book = false;   // print as the book's pages have it
};

// Adds them; `parts` are the names that --part takes, and "matrix" is another.
void add_speed_options(CLI::App& app, SpeedOptions& options, std::vector<std::string> parts);

// --model where it is given, else $QWEN_MODEL, else "": see choose_model.
std::string chosen_model(const SpeedOptions& options);

// What the parts start from: the quick run's measure or that of --full, and what is asked for
// instead.
Speed prepare_speed(const SpeedOptions& options);

// What is known before anything is measured: the machine, the time, the task.
OrderedJson record_of(const std::string& model, int prompt, int steps, int runs);

}  // namespace qwen
