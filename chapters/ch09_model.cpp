// Chapter 9. Do the parts make a language model?
//
// New: layer, model and load put the chapters together, tables says which kernels run. The program
// reads a prompt, shows which tokens the model expects after it, and writes on, each time with the
// likeliest. --check runs every operator beside its plain version, and shows what that says of a
// wrong one; --profile tells where the time goes.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <sstream>

#include "qwen/check.h"
#include "qwen/counted.h"
#include "qwen/model.h"
#include "qwen/options.h"
#include "qwen/profile.h"
#include "qwen/rope.h"
#include "qwen/tables.h"
#include "qwen/tokenizer.h"

using namespace qwen;

namespace {

struct Options {
  ModelOptions model;
  std::string prompt = "One morning Ada walked to";
  int max_new = 24;
  bool check = false, profile = false;
};

void describe(const Config& config) {
  const auto full =
      std::count(config.layer_types.begin(), config.layer_types.end(), LayerType::full_attention);
  std::printf("%s: %d layers, %d with full attention; hidden_size %d, vocab_size %d\n",
              config.model_type.c_str(), config.num_hidden_layers, static_cast<int>(full),
              config.hidden_size, config.vocab_size);
}

// One line of text: line breaks, quotes and control characters as they are written in C.
std::string quoted(const std::string& text) {
  std::string line = "\"";
  for (const char c : text) {
    const int byte = static_cast<unsigned char>(c);
    char code[] = "\\x00";
    std::snprintf(code, sizeof code, "\\x%02x", byte);
    if (c == '"' || c == '\\') line += '\\';
    line += c == '\n' ? "\\n" : std::iscntrl(byte) ? code : std::string(1, c);
  }
  return line + "\"";
}

void show_expected(const Tokenizer& tokenizer, const Tensor2& logits) {
  std::vector<int> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const int shown = std::min(5, dim(logits, 1));
  std::partial_sort(ids.begin(), ids.begin() + shown, ids.end(), [&](int a, int b) {
    return logits(0, a) != logits(0, b) ? logits(0, a) > logits(0, b) : a < b;
  });
  std::printf("after the prompt the model expects:\n");
  for (int i = 0; i < shown; ++i) {
    std::printf("  id %6d  logit %5.1f  %s\n", ids[i], logits(0, ids[i]),
                quoted(decode(tokenizer, {&ids[i], 1})).c_str());
  }
}

// Writes on from `logits`, the likeliest token each time, until the model ends its text or
// `max_new` tokens are written.
void write_on(const Model& model, const Ops& ops, const Tokenizer& tokenizer, Tensor2 logits,
              int max_new, State& state) {
  TextStream stream;
  const std::vector<int>& eos = model.config.eos_token_id;
  for (int i = 0; i < max_new; ++i) {
    const int id = argmax(logits);
    if (std::find(eos.begin(), eos.end(), id) != eos.end()) break;
    std::printf("%s", decode_next(tokenizer, stream, id).c_str());
    std::fflush(stdout);
    if (state.position == model.config.max_position_embeddings) {
      std::fprintf(stderr, "the context of %d tokens is full\n", state.position);
      break;
    }
    if (i + 1 < max_new) logits = forward(model, ops, {&id, 1}, state);
  }
  std::printf("%s\n", finish(stream).c_str());
}

// The table of operators once more, with one entry that turns RoPE the wrong way.
void show_planted_bug(const Model& model, const std::vector<int>& ids) {
  Ops wrong = fast_ops();
  wrong.rope = [](Tensor3& x, const Tensor2& cos, const Tensor2& sin) {
    fast::rope(x, cos, Tensor2(-sin));
  };
  State state = empty_state(model.config);
  try {
    forward(model, checked_ops(wrong, plain_ops()), ids, state);
  } catch (const std::runtime_error& error) {
    std::printf("with RoPE turning backwards:\n~ %s\n", error.what());
  }
}

// Times depend on the machine: ~ and the frame tell tools/book not to compare them.
void show_profile(const Profile& profile, double seconds) {
  std::istringstream lines(report(profile, seconds));
  for (std::string line; std::getline(lines, line);) std::printf("~ [%-74s]\n", line.c_str());
}

void run(const Options& options) {
  const Model model = open_model(options.model);
  const Tokenizer tokenizer = load_tokenizer(options.model.model);
  describe(model.config);

  Profile profile;
  Ops ops = fast_ops();
  if (options.profile) ops = timed_ops(ops, profile);
  if (options.check) ops = checked_ops(ops, plain_ops());

  const std::vector<int> ids = encode_prompt(tokenizer, options.prompt);
  std::printf("the prompt is %s\n", counted(ids.size(), "token").c_str());

  const auto start = std::chrono::steady_clock::now();
  State state = empty_state(model.config);
  const Tensor2 logits = forward(model, ops, ids, state);
  show_expected(tokenizer, logits);
  std::printf("\n%s", options.prompt.c_str());
  write_on(model, ops, tokenizer, logits, options.max_new, state);

  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (options.profile) show_profile(profile, seconds.count());
  if (!options.check) return;
  std::printf("every operator agrees with its plain version\n");
  show_planted_bug(model, ids);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Chapter 9: the whole model writes text, greedily");
  Options options;
  add_model_options(app, options.model);
  app.add_option("--prompt", options.prompt, "the text to continue");
  add_integer(app, "--max-new", options.max_new, 0, 1 << 20, "tokens to write at most");
  app.add_flag("--check", options.check, "compare every operator with its plain version");
  app.add_flag("--profile", options.profile, "print the time by operator");
  return run_program(app, argc, argv, [&] { run(options); });
}
