#include <cmath>
#include <limits>

#include "qwen/sampler.h"
#include "tests/support.h"

using namespace qwen;

namespace {

std::vector<float> logs(std::vector<double> probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

std::vector<int> ids_of(const Distribution& distribution) {
  std::vector<int> ids;
  for (const Candidate& one : distribution) ids.push_back(one.id);
  return ids;
}

}  // namespace

TEST_CASE("top_p: of [.5 .3 .15 .05], 0.6 and 0.8 keep two, 0.85 three, 1e-8 one") {
  const std::vector<float> logits = logs({.5, .3, .15, .05});
  const auto kept = [&](double top_p) {
    return ids_of(distribution(logits, {.temperature = 1, .top_p = top_p}, {}));
  };
  CHECK(kept(1) == std::vector{0, 1, 2, 3});
  CHECK(kept(0.85) == std::vector{0, 1, 2});
  CHECK(kept(0.8) == std::vector{0, 1});
  CHECK(kept(0.6) == std::vector{0, 1});
  CHECK(kept(1e-8) == std::vector{0});
}
