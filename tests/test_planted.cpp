#include <set>

#include "qwen/tables.h"
#include "tests/comparisons.h"
#include "tests/planted.h"

using namespace qwen;

namespace {

const Table kPlain = [](const Config&) { return plain_ops(); };
const Table kFast = [](const Config&) { return fast_ops(); };
const Table kChunks = [](const Config&) { return chunk_ops(); };

Table with(const PlantedBug& bug) {
  return [&bug](const Config& config) {
    Ops ops = plain_ops();
    bug.plant(ops, config);
    return ops;
  };
}

void check_passes(const std::string& name, const Table& table, const Comparison& one) {
  const std::string found = one.complaint(table);
  CHECK_MESSAGE(found.empty(), name << " table, " << one.name << ": " << found);
}

}  // namespace

TEST_CASE("planted bugs: the right tables pass every comparison") {
  for (const auto* kind : {&reference_comparisons(), &invariance_comparisons()}) {
    for (const Comparison& one : *kind) {
      check_passes("the plain", kPlain, one);
      check_passes("the fast", kFast, one);
    }
  }
  check_passes("the chunked", kChunks, comparison("delta_rule in chunks"));
}

TEST_CASE("planted bugs: every one is noticed") {
  for (const PlantedBug& bug : planted_bugs()) {
    const std::string found = comparison(bug.noticed_by).complaint(with(bug));
    CHECK_MESSAGE(!found.empty(), bug.name << ": \"" << bug.noticed_by << "\" does not notice");
  }
}

TEST_CASE("planted bugs: the code around a bug is right") {
  const Table right = [](const Config&) {
    Ops ops = plain_ops();
    plant_no_attention_bug(ops);
    plant_no_deltanet_bug(ops);
    return ops;
  };
  for (const Comparison& one : reference_comparisons()) check_passes("the repaired", right, one);
}

TEST_CASE("planted bugs: a chunk with an unmasked exponent is right until a token forgets all") {
  for (const PlantedBug& bug : planted_bugs()) {
    if (bug.noticed_by != "delta_rule in chunks") continue;
    const std::string found = comparison(bug.noticed_by).complaint(with(bug));
    CHECK_MESSAGE(found.starts_with("stress.fast_decay"), found);
  }
}

TEST_CASE("planted bugs: no reference notices an order of arithmetic that depends on the call") {
  for (const PlantedBug& bug : planted_bugs()) {
    for (const Comparison& one : invariance_comparisons()) {
      if (bug.noticed_by == one.name) check_passes(bug.name, with(bug), comparison("logits"));
    }
  }
}

TEST_CASE("planted bugs: each comparison notices one, each bug has a name of its own") {
  std::set<std::string> names, noticing;
  for (const PlantedBug& bug : planted_bugs()) {
    CHECK_MESSAGE(names.insert(bug.name).second, bug.name << " stands there twice");
    noticing.insert(bug.noticed_by);
  }
  for (const auto* kind : {&reference_comparisons(), &invariance_comparisons()}) {
    for (const Comparison& one : *kind) CHECK_MESSAGE(noticing.contains(one.name), one.name);
  }
}
