// The part `matrix`: the file in which finished measurements outlive an interruption, and what is
// shown of them.
#pragma once

#include <string>
#include <vector>

#include "qwen/processes.h"

namespace qwen {

// Prefill and decode of every configuration: see merged_rows. What the limits were in each process
// is in the file.
std::vector<Row> matrix_rows(const std::vector<Configuration>& configurations,
                             const std::vector<Outcome>& outcomes);

// Writes {"meta": …, "rows": […], "processes": […]}: the rows of results.h, and what they are made
// of. All of it or nothing.
void write_matrix(const std::string& path, const OrderedJson& meta,
                  const std::vector<Configuration>& configurations,
                  const std::vector<Outcome>& outcomes);

// What an earlier run has finished; nothing where there is no such file. std::runtime_error where
// the file is damaged, or was made by another version, on another machine, for another task: `meta`
// is that of the run that begins.
std::vector<Outcome> read_matrix(const std::string& path, const OrderedJson& meta);

// A line for each of them, run 0 in a column of its own.
std::string matrix_table(const std::vector<Row>& rows);

// What is fastest for each model, and whether all agree about what they write.
std::string matrix_conclusion(const std::vector<Row>& rows);

}  // namespace qwen
