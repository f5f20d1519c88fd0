// The part `roofline`: what this machine could do, with one thread and with all.
#pragma once

#include "qwen/speed.h"

namespace qwen {

// Fills in speed.limits; returns the conclusion.
std::string roofline_part(Speed& speed);

}  // namespace qwen
