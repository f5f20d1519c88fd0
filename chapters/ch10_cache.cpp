// Chapter 10. What does a model remember, and how does one go back in it?
//
// New: cache, which keeps a sequence's tokens together with what the model remembers of them. The
// program shows that a cache changes no bit of the result, however the text was cut; that a KV
// cache can be shortened and a recurrent state cannot; what a second question about the same text
// saves; and what a token costs in memory.
#include <algorithm>
#include <cstdio>

#include "qwen/cache.h"
#include "qwen/options.h"
#include "qwen/tables.h"

using namespace qwen;

namespace {

bool same_bits(const Tensor2& a, const Tensor2& b) {
  return a.shape() == b.shape() && std::equal(a.begin(), a.end(), b.begin());
}

const char* yes(bool condition) {
  return condition ? "the same bits" : "DIFFERENT";
}

// `count` ids from all over the vocabulary.
std::vector<int> some_ids(int count, int vocab_size) {
  std::vector<int> ids(count);
  for (int i = 0; i < count; ++i) ids[i] = (i * i * 7 + i * 13 + 5) % vocab_size;
  return ids;
}

void show_pieces(const Model& model, const Ops& ops, const std::vector<int>& text) {
  std::printf("1. %zu tokens, read in pieces\n", text.size());
  Sequence whole = empty_sequence(model.config);
  const Tensor2 expected = read(model, ops, whole, text, 0);
  for (const int piece : {1, 2, 3, 64}) {
    Sequence cut = empty_sequence(model.config);
    const Tensor2 logits = read(model, ops, cut, text, piece);
    std::printf("   pieces of %2d: %s as in one go\n", piece, yes(same_bits(logits, expected)));
  }
}

void show_going_back(const Model& model, const Ops& ops, const std::vector<int>& text) {
  std::printf("2. going back\n");
  const std::span<const int> ids = text;
  Sequence sequence = empty_sequence(model.config);
  read(model, ops, sequence, ids.first(40));
  snapshot(sequence);
  const Tensor2 first_time = read(model, ops, sequence, ids.subspan(40));
  std::printf("   read 40 tokens, took a snapshot, read on to %d\n", sequence.state.position);

  const int back = truncate(sequence, 52);
  std::printf("   truncate to 52: back at %d, so %d tokens must be read again\n", back, 52 - back);
  const Tensor2 again = read(model, ops, sequence, ids.subspan(back));
  std::printf("   read on to %d once more: %s\n", sequence.state.position,
              yes(same_bits(again, first_time)));
  std::printf("   truncate to 39: back at %d\n", truncate(sequence, 39));
}

void show_reuse(const Model& model, const Ops& ops, const std::vector<int>& text) {
  std::printf("3. a second question about the same text\n");
  std::vector<int> first = text, second = text;
  first.insert(first.end(), {11, 12, 13});
  second.insert(second.end(), {21, 22});
  Sequence sequence = empty_sequence(model.config);
  read(model, ops, sequence, text);
  snapshot(sequence);
  read(model, ops, sequence, std::span<const int>(first).subspan(text.size()));

  const int kept = reuse_prefix(sequence, second);
  const Tensor2 reused = read(model, ops, sequence, std::span<const int>(second).subspan(kept));
  Sequence fresh = empty_sequence(model.config);
  const Tensor2 expected = read(model, ops, fresh, second);
  std::printf("   %d of its %zu tokens need not be read; the answer has %s\n", kept, second.size(),
              yes(same_bits(reused, expected)));
}

void show_memory(const Model& model, const Ops& ops) {
  std::printf("4. memory\n   tokens        KV         S      conv     total  bytes\n");
  Sequence sequence = empty_sequence(model.config);
  const std::vector<int> text = some_ids(256, model.config.vocab_size);
  for (const int length : {1, 16, 256}) {
    const int position = sequence.state.position;
    read(model, ops, sequence, std::span<const int>(text).subspan(position, length - position));
    const StateBytes bytes = state_bytes(sequence.state);
    std::printf("   %6d %9zu %9zu %9zu %9zu\n", length, bytes.kv, bytes.recurrent, bytes.conv,
                bytes.total());
  }
  std::printf("   only the KV cache grows, by %zu bytes a token\n",
              state_bytes(sequence.state).kv / 256);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Chapter 10: caches, snapshots, and reading a text only once");
  ModelOptions options;
  add_model_options(app, options);
  return run_program(app, argc, argv, [&] {
    const Model model = open_model(options);
    const Ops ops = fast_ops();
    const std::vector<int> text = some_ids(70, model.config.vocab_size);
    show_pieces(model, ops, text);
    show_going_back(model, ops, text);
    show_reuse(model, ops, text);
    show_memory(model, ops);
  });
}
