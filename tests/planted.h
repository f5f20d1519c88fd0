// Planted bugs: mistakes that have been made in engines of this kind, each as a table of operators
// with one wrong entry. The tests show that every one of them is noticed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "qwen/config.h"
#include "qwen/ops.h"

namespace qwen {

struct PlantedBug {
  std::string name;        // what is done wrong
  std::string noticed_by;  // the comparison (comparisons.h) that must fail
  // Puts the wrong entry into a right table for a model of that config.
  std::function<void(Ops& ops, const Config& config)> plant;
};

const std::vector<PlantedBug>& planted_bugs();

// The code of the wrong entries with nothing wrong in it: to show that it is the bug that is
// noticed, and not how the code around it was written.
Ops planted_code_made_right();

}  // namespace qwen
