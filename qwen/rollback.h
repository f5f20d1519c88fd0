// Going back by a few rows, without reading anything again.
//
// A KV cache is cut. S cannot be, but it can be made again: from a copy of what it was, with the
// rank-one updates of the rows that stay, whose k, v, g and beta are kept. That is the cheap part
// of reading a token; no weight is touched. The same updates in the same order give the same bits.
#pragma once

#include <vector>

#include "qwen/model.h"

namespace qwen {

// What one call did to the state of one DeltaNet layer.
struct DeltaRecord {
  Tensor2 tail;  // as it was before
  Tensor2 in;    // [T, channels] the convolution's inputs
  Tensor3 S;     // as it was before
  Qkv qkv;       // [T, …] the delta rule's inputs
  Tensor2 g, beta;
  std::vector<int> key_head;
};

// The last call of hidden_states for one sequence: its DeltaNet layers in order.
struct Record {
  std::vector<DeltaRecord> layers;
};

// A table like `ops` that also fills in `record`, which must outlive it.
Ops recording_ops(const Ops& ops, Record& record);

// Takes back the last rows of the recorded call, so that the state stands at `position` as if the
// rest had never been read. std::invalid_argument unless that is within the call, behind its first
// row.
void roll_back(const Ops& ops, const Record& record, State& state, int position);

}  // namespace qwen
