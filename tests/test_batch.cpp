#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "qwen/parallel.h"
#include "qwen/prompts.h"
#include "qwen/tables.h"
#include "tests/checkpoints.h"
#include "tests/comparisons.h"

using namespace qwen;

namespace {

// The numbers of the standard's generator are the same everywhere; those of its distributions are
// not.
int below(std::mt19937_64& random, int n) {
  return static_cast<int>(random() % n);
}

// Prompts of 1 to 90 tokens, answers of 0 to 12, every third of them greedy.
Request some_request(const SmallModel& small, std::mt19937_64& random) {
  Request request;
  const int first = below(random, 100), length = 1 + below(random, below(random, 2) ? 90 : 5);
  const std::span<const int> ids = std::span(small.ids).subspan(first, length);
  request.prompt.assign(ids.begin(), ids.end());
  request.max_tokens = below(random, 13);
  if (below(random, 3) == 0) return request;
  request.sampling.temperature = 0.5 + below(random, 3);
  request.sampling.top_k = below(random, 2) * 40;
  request.sampling.top_p = below(random, 2) ? 0.9 : 1;
  request.sampling.frequency_penalty = below(random, 2);
  request.sampling.repetition_penalty = below(random, 2) ? 1.2 : 1;
  request.sampling.seed = random();
  return request;
}

// What comes of a request alone, computed without any of the batch's code.
struct Alone {
  Answer answer;
  std::vector<Tensor2> logits;  // of each token of the answer, and of the one that was not written
};

Alone alone(const Model& model, const Request& request) {
  Alone result;
  Sequence sequence = empty_sequence(model.config);
  result.answer = generate(model, ops(), sequence, request.prompt, request.sampling,
                           request.max_tokens, request.on_token);
  State state = empty_state(model.config);
  result.logits.push_back(forward(model, ops(), request.prompt, state));
  for (const int id : result.answer.ids) {
    result.logits.push_back(forward(model, ops(), {&id, 1}, state));
  }
  return result;
}

// What a schedule runs on: the functions of batch.h, or one of them replaced by a wrong one.
struct Engine {
  std::function<Running(const Model&, int number, const Request&)> begin =
      [](const Model& model, int number, const Request& request) {
        return start(model.config, number, request);
      };
  std::function<int(Running&, std::span<const float> logits)> choose = qwen::choose;
  std::function<void(Running&)> leave = [](Running&) {};
};

// An answer that has not ended must be the beginning of the other.
std::string answer_difference(const Running& running, const Answer& expected) {
  const Answer& actual = running.answer;
  const auto parted =
      std::mismatch(actual.ids.begin(), actual.ids.end(), expected.ids.begin(), expected.ids.end());
  if (parted.first != actual.ids.end()) return "other tokens";
  if (!running.ended) return "";
  if (actual.ids.size() != expected.ids.size()) return "fewer tokens";
  if (actual.ending != expected.ending) return "another ending";
  return actual.end_token == expected.end_token ? "" : "another end token";
}

constexpr int kMost = 33;  // a sequence and its 32 mates

// What has been seen to happen while schedules ran.
struct Seen {
  std::set<std::size_t> sizes;    // of the batch
  std::set<std::size_t> lengths;  // of the prompts
  int pieces = 0;                 // of prompts that were read in several steps
  int given_up = 0;               // sequences that left before they had ended
  int answers = 0, end_tokens = 0;
};

// Runs 60 requests by a random schedule: at any step some join, up to 33 at once, some leave before
// they have ended, and any number of rows is read. Returns the first difference from the same
// sequence alone, in logits or answer, bit for bit; empty where there is none.
std::string batch_complaint(const SmallModel& small, const Engine& engine, unsigned seed,
                            Seen& seen) {
  const Model& model = small.model;
  std::mt19937_64 random(seed);
  std::vector<Request> requests(60);
  std::vector<Alone> expected;
  for (Request& request : requests) {
    request = some_request(small, random);
    expected.push_back(alone(model, request));
  }
  const int most = seed % 2 ? kMost : 1 + below(random, kMost), eagerness = 2 + below(random, 12);
  Batch batch;
  for (std::size_t next = 0; next < requests.size() || !batch.empty();) {
    for (int joining = below(random, eagerness); joining > 0; --joining) {
      if (next == requests.size() || static_cast<int>(batch.size()) == most) break;
      seen.lengths.insert(requests[next].prompt.size());
      batch.push_back(engine.begin(model, static_cast<int>(next), requests[next]));
      ++next;
    }
    if (batch.empty()) continue;
    seen.sizes.insert(batch.size());
    const int spare = below(random, 2) ? below(random, 100) : 0;
    const std::vector<int> rows = share_rows(batch, static_cast<int>(batch.size()) + spare);
    const Tensor2 logits = read_rows(model, ops(), batch, rows);
    int writer = 0;
    for (Running& running : batch) {
      seen.pieces += unread(running) > 0;
      if (unread(running) > 0) continue;
      const Alone& own = expected[running.number];
      const std::string name = "request " + std::to_string(running.number) + " of seed " +
                               std::to_string(seed) + ", token " +
                               std::to_string(running.answer.ids.size());
      const Tensor2 row_of_it = slice(logits, writer++, 1);
      const std::string found =
          bit_difference(name, row_of_it, own.logits[running.answer.ids.size()]);
      if (!found.empty()) return found;
      add_token(model.config, running, engine.choose(running, row_of_it.storage()));
      const std::string other = answer_difference(running, own.answer);
      if (!other.empty()) return name + ": " + other;
      if (!running.ended) continue;
      ++seen.answers;
      seen.end_tokens += running.answer.ending == Ending::end_token;
    }
    CHECK(writer == dim(logits, 0));
    for (Running& running : batch) {
      if (!running.ended && below(random, 60) == 0) {
        running.ended = true;
        ++seen.given_up;
      }
      if (running.ended) engine.leave(running);
    }
    std::erase_if(batch, [](const Running& running) { return running.ended; });
  }
  return "";
}

std::string batch_complaint(const SmallModel& small, const Engine& engine) {
  Seen seen;
  std::string found;
  for (unsigned seed = 1; found.empty() && seed <= 3; ++seed) {
    found = batch_complaint(small, engine, seed, seen);
  }
  return found;
}

// ---- planted bugs ----

// What makes a KV cache as good as new. S takes no notice of it.
void set_length_to_0(State& state) {
  for (LayerState& layer : state.layers) {
    if (auto* kv = std::get_if<KVCache>(&layer)) truncate(*kv, 0);
  }
  state.position = 0;
}

// Prompts of one length, by pads in front. Attention is told not to look at them, and positions
// count from the first real token; the recurrent state has read them all the same.
Engine with_left_padding() {
  Engine engine;
  engine.begin = [](const Model& model, int number, const Request& request) {
    Running running = start(model.config, number, request);
    const int pads = 90 - static_cast<int>(request.prompt.size());
    if (pads == 0) return running;
    forward(model, ops(), std::vector<int>(pads, 0), running.state);
    set_length_to_0(running.state);
    return running;
  };
  return engine;
}

// States are kept for those who come next, as one does with KV caches: set to length 0.
Engine with_states_of_others() {
  Engine engine;
  const auto kept = std::make_shared<std::vector<State>>();
  engine.leave = [kept](Running& running) { kept->push_back(std::move(running.state)); };
  engine.begin = [kept](const Model& model, int number, const Request& request) {
    Running running = start(model.config, number, request);
    if (kept->empty()) return running;
    running.state = std::move(kept->back());
    kept->pop_back();
    set_length_to_0(running.state);
    return running;
  };
  return engine;
}

// One generator for all: what a sequence draws depends on how often the others have drawn.
Engine with_a_shared_generator() {
  Engine engine;
  engine.choose = [shared = std::mt19937_64(1)](Running& running,
                                                std::span<const float> logits) mutable {
    std::swap(running.generator, shared);
    const int id = choose(running, logits);
    std::swap(running.generator, shared);
    return id;
  };
  return engine;
}

// Penalties look at what the whole batch has written.
Engine with_a_shared_history() {
  Engine engine;
  engine.choose = [shared = History{}](Running& running, std::span<const float> logits) mutable {
    for (const auto& [id, count] : running.history.counts) shared.counts[id] += count;
    std::swap(running.history, shared);
    const int id = choose(running, logits);
    std::swap(running.history, shared);
    return id;
  };
  return engine;
}

}  // namespace

TEST_CASE("batch: with any mates, joining and leaving at any step, the bits of a sequence alone") {
  Seen seen;
  for (const std::string name : {"tiny", "bf16", "qwen3"}) {
    const SmallModel small = small_model(name);
    const unsigned schedules = name == "tiny" ? 12 : 4;
    for (unsigned seed = 1; seed <= schedules; ++seed) {
      const std::string found = batch_complaint(small, Engine{}, seed, seen);
      CHECK_MESSAGE(found.empty(), name << ": " << found);
    }
  }
  CHECK(seen.sizes.size() == kMost);
  CHECK(*seen.sizes.rbegin() == kMost);
  CHECK(*seen.lengths.begin() == 1);
  CHECK(*seen.lengths.rbegin() > 64);
  CHECK(seen.pieces > 100);
  CHECK(seen.given_up > 10);
  CHECK(seen.answers > 500);
  CHECK(seen.end_tokens > 0);
}

TEST_CASE("batch: planted bugs are noticed") {
  const SmallModel small = small_model("tiny");
  CHECK(batch_complaint(small, Engine{}) == "");
  CHECK(batch_complaint(small, with_left_padding()) != "");
  CHECK(batch_complaint(small, with_states_of_others()) != "");
  CHECK(batch_complaint(small, with_a_shared_generator()).ends_with("other tokens"));
  CHECK(batch_complaint(small, with_a_shared_history()).ends_with("other tokens"));
}

TEST_CASE("batch: where no layer is recurrent, pads and old states that are masked do no harm") {
  const SmallModel small = small_model("qwen3");
  CHECK(batch_complaint(small, with_left_padding()) == "");
  CHECK(batch_complaint(small, with_states_of_others()) == "");
}

// ---- rows ----

namespace {

// A batch of sequences with so many tokens unread.
Batch batch_of(const Config& config, const std::vector<int>& lengths) {
  Batch batch;
  for (const int length : lengths) {
    Request request;
    request.prompt.assign(length, 3);
    batch.push_back(start(config, static_cast<int>(batch.size()), request));
  }
  return batch;
}

}  // namespace

TEST_CASE("share_rows: one for everybody, the rest in the order in which they joined") {
  const Config config = small_model("tiny").model.config;
  const Batch batch = batch_of(config, {1, 40, 1, 7, 30});
  CHECK(share_rows(batch, 5) == std::vector<int>{1, 1, 1, 1, 1});
  CHECK(share_rows(batch, 20) == std::vector<int>{1, 16, 1, 1, 1});
  CHECK(share_rows(batch, 50) == std::vector<int>{1, 40, 1, 7, 1});
  CHECK(share_rows(batch, 52) == std::vector<int>{1, 40, 1, 7, 3});
  CHECK(share_rows(batch, 1000) == std::vector<int>{1, 40, 1, 7, 30});
  CHECK(share_rows({}, 5).empty());
  check_throws_with([&] { share_rows(batch, 4); }, "[batch] 5 sequences for 4 rows a step");
}

TEST_CASE("step: the head runs for those alone that have nothing unread") {
  const SmallModel small = small_model("tiny");
  Batch batch = batch_of(small.model.config, {1, 9, 3});
  CHECK(dim(read_rows(small.model, ops(), batch, {1, 2, 2}), 0) == 1);
  CHECK(unread(batch[1]) == 7);
  CHECK(batch[1].state.position == 2);
  Batch readers = batch_of(small.model.config, {5, 5});
  CHECK(dim(read_rows(small.model, ops(), readers, {2, 2}), 0) == 0);
}

TEST_CASE("step: a value that is not finite ends its sequence alone, the others keep their bits") {
  const TempDir folder;
  CheckpointParts parts = take_apart("untied");
  parts.set("model.embed_tokens.weight", 8 * 35 + 3, NAN);
  const Model model = load_model(write_checkpoint(folder, parts));
  std::vector<Request> requests(3);
  requests[0].prompt = {5, 6, 7};
  requests[1].prompt = {5, 9, 8};
  requests[2].prompt = {11, 12};
  Batch batch;
  for (int i = 0; i < 3; ++i) {
    requests[i].max_tokens = 4;
    batch.push_back(start(model.config, i, requests[i]));
  }
  const Tensor2 logits = read_rows(model, ops(), batch, {3, 3, 2});
  for (const int i : {0, 2}) {
    State state = empty_state(model.config);
    check_same_bits("logits", slice(logits, i, 1),
                    forward(model, ops(), requests[i].prompt, state));
    CHECK_FALSE(batch[i].ended);
  }
  CHECK(batch[1].ended);
  CHECK(batch[1].error.find("embed_tokens: row 2, column 3 is nan") != std::string::npos);

  // Read in pieces, it meets the token when the first has left already.
  BatchLimits limits{1 << 24, 3, 3};
  Scheduler scheduler{limits, {}, {}};
  for (int i = 0; i < 3; ++i) submit(model.config, scheduler, i, requests[i]);
  int ended = 0;
  while (busy(scheduler)) {
    for (const Running& done : step(model, ops(), scheduler)) {
      ++ended;
      CHECK(done.error.empty() == (done.number != 1));
      if (done.number == 1) continue;
      CHECK(answer_difference(done, alone(model, requests[done.number]).answer) == "");
    }
  }
  CHECK(ended == 3);
}

TEST_CASE("step: logits that are not finite end the sequences that have them") {
  const TempDir folder;
  CheckpointParts parts = take_apart("untied");
  parts.set("lm_head.weight", 7 * 35 + 3, NAN);
  const Model model = load_model(write_checkpoint(folder, parts));
  Batch batch = batch_of(model.config, {1, 9});
  const std::vector<Running> done = step(model, ops(), batch, 4);
  REQUIRE(done.size() == 1);  // the other has not come to them
  CHECK(done[0].error.find("the head: row 0, column 7 is nan") != std::string::npos);
  CHECK(done[0].answer.ids.empty());
  CHECK(batch.size() == 1);
}

// ---- endings ----

namespace {

Answer answer_of(const SmallModel& small, Request request) {
  Batch batch;
  batch.push_back(start(small.model.config, 0, std::move(request)));
  while (true) {
    std::vector<Running> done = step(small.model, ops(), batch, 64);
    if (!done.empty()) return done[0].answer;
  }
}

}  // namespace

TEST_CASE("step: an answer ends as generate ends it, each by a rule of its own") {
  SmallModel small = small_model("tiny");
  Request request;
  request.prompt = {5, 6, 7};
  request.max_tokens = 9;
  const std::vector<int> ids = alone(small.model, request).answer.ids;
  REQUIRE(ids.size() == 9);

  const auto check_ending = [&](const std::string& name, const Request& asked, Ending ending) {
    const Answer expected = alone(small.model, asked).answer, actual = answer_of(small, asked);
    CAPTURE(name);
    CHECK(expected.ending == ending);
    CHECK(actual.ending == ending);
    CHECK(actual.ids == expected.ids);
    CHECK(actual.end_token == expected.end_token);
  };
  check_ending("as many as asked for", request, Ending::max_tokens);
  request.max_tokens = 1;
  check_ending("a single one", request, Ending::max_tokens);
  request.max_tokens = 0;
  check_ending("none", request, Ending::max_tokens);

  request.max_tokens = 9;
  request.on_token = [&](int id) { return id != ids[4]; };
  check_ending("told to", request, Ending::stopped);

  request.on_token = nullptr;
  small.model.config.eos_token_id = {262, ids[6]};
  check_ending("a token that ends texts", request, Ending::end_token);
  small.model.config.eos_token_id = {};
  for (const int context : {3, 4, 7, 11}) {
    small.model.config.max_position_embeddings = context;
    check_ending("a context of " + std::to_string(context), request, Ending::context);
  }
  small.model.config.max_position_embeddings = 12;
  check_ending("a context that is just enough", request, Ending::max_tokens);
}

TEST_CASE("start: what cannot be answered is refused") {
  const Config config = small_model("tiny").model.config;
  Request request;
  check_throws_with([&] { start(config, 0, request); }, "no tokens: at least 1 is needed");
  request.prompt.assign(513, 3);
  check_throws_with([&] { start(config, 0, request); }, "513 more tokens after 0 do not fit");
  request.prompt = {263};
  check_throws_with([&] { start(config, 0, request); }, "token id 263 at position 0");
  request.prompt = {3};
  request.max_tokens = -1;
  check_throws_with([&] { start(config, 0, request); }, "max_tokens is -1, expected 0 or more");
  request.max_tokens = 1;
  request.sampling.top_p = 0;
  check_throws_with([&] { start(config, 0, request); }, "[sampling] top_p is 0");
}

// ---- memory ----

namespace {

// Counted from the tensors, whatever is in use of them.
std::size_t bytes_of(const Batch& batch) {
  std::size_t floats = 0;
  for (const Running& running : batch) {
    for (const LayerState& layer : running.state.layers) {
      if (const auto* kv = std::get_if<KVCache>(&layer)) {
        floats += kv->keys.size() + kv->values.size();
      } else {
        const auto& delta = std::get<DeltaState>(layer);
        floats += delta.S.size() + delta.tail.size();
      }
    }
  }
  return 4 * floats;
}

std::size_t bytes_of_request(const Config& config, const Request& request) {
  return bytes_for(config, tokens_at_most(config, request));
}

std::vector<Request> some_requests(const SmallModel& small, int count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<Request> requests(count);
  for (Request& request : requests) request = some_request(small, random);
  return requests;
}

}  // namespace

TEST_CASE("bytes_for: what a sequence comes to hold, no more and no less, to its last token") {
  for (const std::string& name : small_models()) {
    const SmallModel small = small_model(name);
    for (const int max_tokens : {0, 1, 2, 30, 1 << 30}) {
      Request request;
      request.prompt.assign(5, 3);
      request.max_tokens = max_tokens;
      Batch batch;
      batch.push_back(start(small.model.config, 0, request));
      const std::size_t bytes = bytes_of_request(small.model.config, request);
      CAPTURE(name);
      CHECK(bytes_of(batch) == bytes);
      CHECK(bytes_held(batch) == bytes);
      // 600 steps: enough to fill the context.
      for (int i = 0; i < 600 && step(small.model, ops(), batch, 64).empty(); ++i) {
        CHECK(bytes_of(batch) == bytes);
      }
    }
  }
}

TEST_CASE("scheduler: the budget is never exceeded, is made use of, and everybody is answered") {
  const SmallModel small = small_model("tiny");
  const Config& config = small.model.config;
  const std::vector<Request> requests = some_requests(small, 40, 7);
  std::size_t largest = 0;
  for (const Request& request : requests) {
    largest = std::max(largest, bytes_of_request(config, request));
  }
  for (const std::size_t budget : {largest, largest + 1, 3 * largest, 10 * largest}) {
    Scheduler scheduler{{budget, 32, 40}, {}, {}};
    for (std::size_t i = 0; i < requests.size(); ++i) {
      submit(config, scheduler, static_cast<int>(i), requests[i]);
    }
    std::size_t most = 0;
    std::vector<int> answered(requests.size());
    while (busy(scheduler)) {
      const std::vector<Running> done = step(small.model, ops(), scheduler);
      for (const Running& running : done) ++answered[running.number];
      // Those that are done held their bytes during the step, too.
      most = std::max(most, bytes_of(scheduler.batch) + bytes_of(done));
    }
    CHECK(most <= budget);
    CHECK(most + largest > budget);  // there was no room for another
    CHECK(answered == std::vector<int>(requests.size(), 1));
  }
}

TEST_CASE("scheduler: requests begin in order, even where a later one would have room") {
  const SmallModel small = small_model("tiny");
  Scheduler scheduler{{0, 32, 32}, {}, {}};
  Request little, large;
  little.prompt = {3, 4};
  little.max_tokens = 4;
  large.prompt.assign(400, 3);
  large.max_tokens = 4;
  scheduler.limits.bytes = bytes_of_request(small.model.config, large) + 8;
  int number = 0;
  for (const Request& request : {little, large, little}) {
    submit(small.model.config, scheduler, number++, request);
  }
  std::vector<int> order;
  int largest = 0;
  while (busy(scheduler)) {
    const std::vector<Running> done = step(small.model, ops(), scheduler);
    for (const Running& running : done) order.push_back(running.number);
    largest = std::max(largest, static_cast<int>(scheduler.batch.size()));
  }
  CHECK(order == std::vector<int>{0, 1, 2});
  CHECK(largest == 1);
}

TEST_CASE("scheduler: one that never fits is refused with what to do, and not queued") {
  const SmallModel small = small_model("tiny");
  const Config& config = small.model.config;
  Scheduler scheduler;
  Request request;
  request.prompt.assign(60, 3);
  request.max_tokens = 41;
  scheduler.limits.bytes = bytes_for(config, 100) - 1;
  check_throws_with([&] { submit(config, scheduler, 0, request); },
                    "[scheduler] 60 tokens of prompt and 41 of answer take 46040 bytes of state, "
                    "and all sequences together may hold 46039: ask for fewer tokens or allow");
  CHECK_FALSE(busy(scheduler));
  ++scheduler.limits.bytes;
  submit(config, scheduler, 0, request);
  CHECK(busy(scheduler));
  check_throws_with([] { check_limits({1, 0, 5}); }, "0 sequences at once, expected at least 1");
  check_throws_with([] { check_limits({1, 6, 5}); }, "5 rows a step for up to 6 sequences");
}

TEST_CASE("scheduler: answers do not depend on limits or threads, and are those of each alone") {
  const SmallModel small = small_model("tiny");
  const std::vector<Request> requests = some_requests(small, 50, 9);
  std::vector<Answer> expected;
  for (const Request& request : requests) expected.push_back(alone(small.model, request).answer);
  const int before = thread_count();
  for (const BatchLimits& limits :
       {BatchLimits{1 << 20, 1, 1}, {1 << 20, 5, 5}, {1 << 24, 33, 40}, {1 << 24, 50, 1000}}) {
    set_thread_count(1 + limits.sequences % 3);
    Scheduler scheduler{limits, {}, {}};
    for (std::size_t i = 0; i < requests.size(); ++i) {
      submit(small.model.config, scheduler, static_cast<int>(i), requests[i]);
    }
    while (busy(scheduler)) {
      for (const Running& done : step(small.model, ops(), scheduler)) {
        CHECK(answer_difference(done, expected[done.number]) == "");
      }
    }
  }
  set_thread_count(before);
}

// ---- a file of prompts ----

namespace {

Tokenizer tiny_tokenizer() {
  return load_tokenizer("checkpoints/tiny");
}

std::vector<PromptLine> prompts_in(std::string_view text) {
  static const Tokenizer tokenizer = tiny_tokenizer();
  Request defaults;
  defaults.max_tokens = 6;
  return read_prompts(text, "list", tokenizer, {ChatForm::qwen3_5, "", false}, 512, defaults);
}

std::string error_in(std::string_view text) {
  const std::vector<PromptLine> prompts = prompts_in(text);
  REQUIRE(prompts.size() == 1);
  CHECK(prompts[0].error.find('\n') == std::string::npos);
  return prompts[0].error;
}

}  // namespace

TEST_CASE("prompts: every field of a line, and the defaults") {
  const std::vector<PromptLine> prompts = prompts_in(
      "{\"prompt\": \"abc\"}\r\n\n  \n"
      "{\"id\": [1, \"x\"], \"prompt\": \"abc\", \"max_new\": 3, \"seed\": 18446744073709551615, "
      "\"stop\": [\"c\", \"d\"], \"temperature\": 0.5, \"top_k\": 6, \"top_p\": 0.7, \"min_p\": "
      "0.1, "
      "\"repetition_penalty\": 1.5, \"presence_penalty\": -1, \"frequency_penalty\": null}");
  REQUIRE(prompts.size() == 2);
  CHECK(prompts[0].error == "");
  CHECK(prompts[0].number == 1);
  CHECK(prompts[0].source == "list:1");
  CHECK(prompts[0].request.prompt == encode(tiny_tokenizer(), "abc"));
  CHECK(prompts[0].request.max_tokens == 6);
  CHECK(prompts[0].request.sampling.temperature == 0);
  CHECK_FALSE(prompts[0].request.on_token);
  const Sampling& s = prompts[1].request.sampling;
  CHECK(prompts[1].number == 4);
  CHECK(prompts[1].id == OrderedJson::parse("[1, \"x\"]"));
  CHECK(prompts[1].request.max_tokens == 3);
  CHECK(prompts[1].stop == std::vector<std::string>{"c", "d"});
  CHECK(s.seed == UINT64_MAX);
  CHECK(s.temperature == 0.5);
  CHECK(s.top_k == 6);
  CHECK(s.top_p == 0.7);
  CHECK(s.min_p == 0.1);
  CHECK(s.repetition_penalty == 1.5);
  CHECK(s.presence_penalty == -1);
  CHECK(s.frequency_penalty == 0);
}

TEST_CASE("prompts: messages are written down as the template has it") {
  const Tokenizer tokenizer = tiny_tokenizer();
  const std::string hello = "{\"messages\": [{\"role\": \"user\", \"content\": \"abc\"}]";
  const std::vector<PromptLine> lines =
      prompts_in(hello + ", \"max_new\": 2}\n" + hello + ", \"enable_thinking\": true}");
  REQUIRE(lines.size() == 2);
  Chat chat;
  chat.messages.push_back({Role::user, "abc"});
  const ChatTemplate form{ChatForm::qwen3_5, "", false};
  CHECK(lines[0].error == "");
  CHECK(lines[0].request.prompt == render(form, tokenizer, chat).ids);
  CHECK(lines[0].request.max_tokens == 2);
  chat.enable_thinking = true;
  CHECK(lines[1].request.prompt == render(form, tokenizer, chat).ids);
  CHECK(lines[1].request.prompt != lines[0].request.prompt);
}

TEST_CASE("prompts: a line that is wrong says where and why") {
  CHECK(error_in("\n{\"prompt\": 5}") == "list:2: prompt is 5, expected a string");
  CHECK(error_in("{}") == "list:1: prompt is missing, expected a string");
  CHECK(error_in("[]") == "list:1: found [], expected a JSON object");
  CHECK(error_in("\n\n{\"prompt\": }") == "list:3: not valid JSON, see byte 12");
  CHECK(error_in("{\"prompt\": \"a\", \"max_tokens\": 5}")
            .starts_with("list:1: unknown field \"max_tokens\", expected prompt, messages, tools"));
  CHECK(error_in("{\"prompt\": \"a\", \"max_new\": -1}").find("max_new is -1, expected") !=
        std::string::npos);
  for (const char* seed : {"-1", "1.5", "1e+20"}) {
    CHECK(error_in("{\"prompt\": \"a\", \"seed\": " + std::string(seed) + "}") ==
          "list:1: seed is " + std::string(seed) +
              ", expected a whole number from 0 to 18446744073709551615");
  }
  CHECK(error_in("{\"prompt\": \"a\", \"stop\": \"\"}").find("stop is \"\", expected") !=
        std::string::npos);
  CHECK(error_in("{\"prompt\": \"a\", \"stop\": [1]}").find("stop is [1], expected") !=
        std::string::npos);
  CHECK(error_in(std::string(100000, '[')) == "list:1: JSON nested more than 100 deep");
  CHECK(error_in("{\"messages\": []}") == "list:1: [chat template] there are no messages");
  CHECK(error_in("{\"messages\": [], \"prompt\": \"a\"}") ==
        "list:1: prompt is \"a\", expected nothing beside messages");
  CHECK(error_in("{\"prompt\": \"a\", \"tools\": []}") ==
        "list:1: tools is [], expected it beside messages, not beside a prompt");
  CHECK(error_in("{\"messages\": 5}").starts_with("list:1: messages is 5"));
  CHECK(error_in("{\"prompt\": " + std::string(100000, '[')) ==
        "list:1: JSON nested more than 100 deep");
}

namespace {

// The lines that come of a text of prompts.
std::vector<Json> answers_to(const SmallModel& small, std::string_view text,
                             const BatchLimits& limits) {
  const Tokenizer tokenizer = tiny_tokenizer();
  std::vector<Json> answers;
  answer_prompts(
      small.model, ops(), prompts_in(text), limits,
      [&](const PromptLine& line) {
        const std::string json = answer_json(tokenizer, line);
        CHECK(json.find('\n') == std::string::npos);
        answers.push_back(Json::parse(json));
        CHECK(answers.back()["line"] == line.number);
      },
      [](const Scheduler&) { return true; });
  return answers;
}

std::string request_line(const std::string& prompt, int max_new) {
  return Json{{"prompt", prompt}, {"max_new", max_new}}.dump() + "\n";
}

}  // namespace

TEST_CASE("prompts: the line of a value that is not finite is named, and is the only one to fail") {
  const TempDir folder;
  CheckpointParts parts = take_apart("untied");
  const int q = encode(tiny_tokenizer(), "q").at(0);
  parts.set("model.embed_tokens.weight", q * 35, NAN);
  const SmallModel broken{"", load_model(write_checkpoint(folder, parts)), {}, {}};
  const SmallModel whole = small_model("untied");
  const std::string text = request_line("abc", 3) + request_line("q", 3) + request_line("abd", 3);
  const std::vector<Json> lines = answers_to(broken, text, {});
  const std::vector<Json> expected = answers_to(whole, text, {});
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == expected[0]);
  CHECK(lines[1]["error"].get<std::string>().starts_with("list:2: [forward] embed_tokens: row 0"));
  CHECK(lines[2] == expected[2]);
}

TEST_CASE("prompts: what cannot fit is refused before it is cut into tokens") {
  const std::string large(1 << 20, 'x');
  const std::string too_long = "list:1: [tokenizer] a text of 1048576 bytes is at least ";
  CHECK(error_in("{\"prompt\": \"" + large + "\"}").starts_with(too_long));
  CHECK(error_in("{\"messages\": [{\"role\": \"user\", \"content\": \"" + large + "\"}]}")
            .find("tokens, and the context has room for 511") != std::string::npos);
}

TEST_CASE("prompts: each gets exactly one answer, in order, the wrong ones too") {
  const SmallModel small = small_model("tiny");
  // Long and short answers in turn, so that later ones are done before earlier ones.
  std::string text;
  for (int i = 0; i < 20; ++i) {
    text += request_line("the river " + std::to_string(i), i % 3 == 0 ? 20 : 1 + i % 5);
  }
  text += "{oops\n\n" + request_line("", 5) + request_line("so long", 400) +
          "{\"prompt\": \"x\", \"top_p\": 2}\n" + request_line("the end", 2);
  const BatchLimits limits{4 * bytes_for(small.model.config, 60), 7, 9};
  const std::vector<Json> lines = answers_to(small, text, limits);
  REQUIRE(lines.size() == 25);
  for (int i = 0; i < 20; ++i) {
    CHECK(lines[i]["line"] == i + 1);
    CHECK(lines[i]["tokens"] <= (i % 3 == 0 ? 20 : 1 + i % 5));
    CHECK(lines[i].contains("text"));
    CHECK(lines[i].contains("ended"));
  }
  const auto error = [&](int i) { return lines[i]["error"].get<std::string>(); };
  CHECK(error(20).starts_with("list:21: not valid JSON"));
  CHECK(lines[21]["line"] == 23);
  CHECK(error(21) == "list:23: [forward] no tokens: at least 1 is needed");
  CHECK(error(22).find("list:24: [scheduler] ") == 0);
  CHECK(error(22).find("ask for fewer tokens or allow more memory") != std::string::npos);
  CHECK(error(23).starts_with("list:25: [sampling] top_p is 2"));
  CHECK(lines[24]["line"] == 26);
  CHECK(lines[24]["tokens"] <= 2);

  // Alone, each has the same answer.
  std::vector<Json> one_by_one;
  for (const Json& line : answers_to(small, text, {1 << 24, 1, 1})) one_by_one.push_back(line);
  for (int i = 0; i < 20; ++i) CHECK(lines[i] == one_by_one[i]);
}

TEST_CASE("prompts: an answer ends in front of a stop text, also where tokens meet in it") {
  const SmallModel small = small_model("tiny");
  const BatchLimits limits;
  const Json whole = answers_to(small, request_line("the river", 20), limits)[0];
  const std::string text = whole["text"];
  REQUIRE(text.size() > 8);
  for (std::size_t at = 0; at + 3 < text.size(); ++at) {
    if ((text[at] & 0x80) || (text[at + 1] & 0x80) || (text[at + 2] & 0x80)) continue;
    const std::string stop = text.substr(at, 3);
    const Json request = {{"prompt", "the river"}, {"max_new", 20}, {"stop", {"nowhere", stop}}};
    const Json line = answers_to(small, request.dump(), limits)[0];
    CHECK(line["text"] == text.substr(0, text.find(stop)));
    CHECK(line["ended"] == "stop");
    CHECK(line["tokens"] <= whole["tokens"]);
  }
}

TEST_CASE("prompts: given up, those that have their answers are the first ones") {
  const SmallModel small = small_model("tiny");
  std::string text;
  for (int i = 0; i < 9; ++i) text += request_line("abc", i == 4 ? 30 : 3);
  int steps = 0, answered = 0;
  answer_prompts(
      small.model, ops(), prompts_in(text), {1 << 24, 9, 30},
      [&](const PromptLine& line) { CHECK(line.number == ++answered); },
      [&](const Scheduler&) { return ++steps <= 10; });
  CHECK(answered == 4);
}

TEST_CASE("prompts: a first word keeps its space, an unfinished character is shown as such") {
  const Tokenizer tokenizer = tiny_tokenizer();
  PromptLine line;
  line.answer.ids = encode(tokenizer, " né");
  CHECK(answer_text(tokenizer, line) == " né");
  line.answer.ids.pop_back();
  CHECK(answer_text(tokenizer, line) == decode(tokenizer, line.answer.ids));

  // At the start of a text, this one's decoding takes a space off; an answer is no start.
  const Tokenizer pieces = load_tokenizer("tokenizers/pieces");
  REQUIRE(pieces.drops_first_space);
  line.answer.ids = encode(pieces, "the key");
  CHECK(decode(pieces, line.answer.ids) == "the key");
  CHECK(answer_text(pieces, line) == " the key");
}
