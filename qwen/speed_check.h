// Before anything is timed: whether it computes the right thing.
#pragma once

namespace qwen {

// On a small random model: fast operators against plain ones, one forward against token by token,
// one thread against several, chunks against single tokens. std::runtime_error, naming the two
// that differ.
void check_results(int threads);

}  // namespace qwen
