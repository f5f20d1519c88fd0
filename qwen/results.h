// What was measured: rows with stable names, as a table for people and as JSON for scripts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qwen/json.h"
#include "qwen/measure.h"

namespace qwen {

// One figure. What does not apply stays empty, and is null in JSON.
struct Row {
  std::string part;    // of the speed chapter: "threads"
  std::string metric;  // "prefill", "decode", "bandwidth", "fma_peak", …
  std::string model, device = "cpu", dtype;
  int threads = 0;
  std::optional<int> tokens, context, batch;
  double value = 0;
  std::string unit;                   // "tok/s", "ms", "GB/s" or "GFLOP/s" where it is a speed
  std::optional<double> min, median;  // of the runs, in milliseconds
  std::optional<double> first;        // run 0, in milliseconds; of several processes the median
  int runs = 0;
  bool scattered = false;                  // the runs differ too much to be trusted
  std::optional<double> limit, predicted;  // in the row's unit
  std::optional<std::uint64_t> output_hash;
  // Of every run, in milliseconds: a list for each process, run 0 first.
  std::vector<std::vector<double>> times;
};

// Fills in what the runs say. `amount` is the work of one run in the row's unit and seconds (128
// tokens, 3 GB, …); for the unit "ms" it is left out.
void set_times(Row& row, const Summary& times, double amount = 0);

// value of limit for a speed, limit of value for a time; nothing without a limit.
std::optional<double> percent_of_limit(const Row& row);

// "1.505", "23.4", "188": four digits, enough for any figure here.
std::string figure(double value);

// 87.46 -> "87.5"
std::string one_decimal(double value);

// 0.0904 -> "9 %"
std::string percent(double share);

// 16 hexadecimal digits.
std::string hash_text(std::uint64_t hash);

// The text in lines of at most `width` characters, broken at spaces.
std::string wrapped(const std::string& text, std::size_t width = 100);

// One line for each row, under a line of headings. Marked with * is what scattered.
std::string table(const std::vector<Row>& rows);

OrderedJson to_json(const Row& row);
OrderedJson to_json(const std::vector<Row>& rows);

// The rows that to_json has written. `source` is where the list stands, for messages;
// std::runtime_error naming it, the row and the field that is missing, of another type, or cannot
// have been measured.
std::vector<Row> rows_from_json(const Json& list, const std::string& source);

// Writes {"meta": …, "rows": […]}; all of it or nothing. std::runtime_error where it cannot.
void write_results(const std::string& path, const OrderedJson& meta, const std::vector<Row>& rows);

}  // namespace qwen
