// The part `mtp`: what rounds of drafts cost, and how many drafts must be accepted to pay for it.
#pragma once

#include "qwen/speed.h"

namespace qwen {

// 1 + r + r² + … + r^drafts: the tokens of a round when every draft, if all before it were
// accepted, is accepted with probability r.
double tokens_of_round(double acceptance, int drafts);

std::string mtp_part(Speed& speed);

}  // namespace qwen
