// Planted bugs: mistakes that have been made in engines of this kind, each as a table of operators
// with one wrong entry. The tests show that every one of them is noticed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "qwen/config.h"
#include "qwen/ops.h"

namespace qwen {

// Puts a wrong entry into a right table for a model of that config.
using Plant = std::function<void(Ops& ops, const Config& config)>;

struct PlantedBug {
  std::string name;        // what is done wrong
  std::string noticed_by;  // the comparison (comparisons.h) that must fail
  Plant plant;
};

// All of them, in the order of the chapters.
const std::vector<PlantedBug>& planted_bugs();

// By what they are planted in: planted_norm.cpp and so on.
std::vector<PlantedBug> norm_bugs();
std::vector<PlantedBug> attention_bugs();
std::vector<PlantedBug> deltanet_bugs();
std::vector<PlantedBug> order_bugs();

// The code of the wrong entries with nothing wrong in it: to show that it is the bug that is
// noticed, and not how the code around it was written.
void plant_no_attention_bug(Ops& ops);
void plant_no_deltanet_bug(Ops& ops);

// plant(&Ops::rope, rope_backwards): a bug that is one function in the place of another.
template <class Entry, class Wrong>
Plant plant(Entry Ops::*entry, Wrong wrong) {
  return [=](Ops& ops, const Config&) { ops.*entry = wrong; };
}

}  // namespace qwen
