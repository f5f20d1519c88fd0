// The part `matrix`: every model in every dtype on every device with every number of threads, each
// in processes of its own, in one table and one file. What is finished survives an interruption.
#pragma once

#include "qwen/speed_options.h"

namespace qwen {

// Measures what the options ask for, prints the table, writes the files; after Ctrl-C with what is
// finished.
void measure_matrix(const SpeedOptions& options);

}  // namespace qwen
