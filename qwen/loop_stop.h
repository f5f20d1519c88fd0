// A model that has begun to say the same again and again rarely stops by itself.
#pragma once

#include <vector>

namespace qwen {

// Notices that a text ends in an exact repetition: a period of up to 256 tokens that has come at
// least four times, the repeated part `most` tokens or longer.
class LoopWatch {
 public:
  explicit LoopWatch(int most = 128);

  // Adds a token; returns the period of the loop the text is now in, 0 if in none.
  int add(int id);

 private:
  int most_;
  std::vector<int> ids_;
  std::vector<int> equal_;  // [p]: so many tokens up to now equal the one p places before
};

}  // namespace qwen
