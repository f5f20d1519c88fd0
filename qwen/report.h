// The results as a page: one HTML file that needs nothing else, with charts as inline SVG. It reads
// on a phone, in the dark and on paper.
#pragma once

#include <string>
#include <vector>

#include "qwen/results.h"

namespace qwen {

// What stands around the rows of a part.
struct Section {
  std::string part, question, conclusion;
};

// `meta` is that of write_results. Every row is shown, those without a section under their part.
std::string report(const OrderedJson& meta, const std::vector<Section>& sections,
                   const std::vector<Row>& rows);

// Writes it; all of it or nothing. std::runtime_error where it cannot.
void write_report(const std::string& path, const OrderedJson& meta,
                  const std::vector<Section>& sections, const std::vector<Row>& rows);

}  // namespace qwen
