// Which chart shows rows best: what varies becomes the axis, or the labels.
#pragma once

#include <string>
#include <vector>

#include "qwen/results.h"

namespace qwen {

// SVG drawings, one after the other, for the rows of one part. Rows that vary in tokens, context or
// batch over three values or more become lines over it, others bars; what cannot be compared with
// anything, such as a single row in its unit, gets no chart.
std::vector<std::string> charts(const std::vector<Row>& rows);

}  // namespace qwen
