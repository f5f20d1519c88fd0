// Chapter 2. What does a model see of a text?
//
// New modules: utf8, pretokenize, bpe, added_tokens (the steps from text to token ids), tokenizer
// (all of them together, and the way back), embedding (from ids to rows of numbers). The program
// takes one text through all steps, and then uses the same rows the other way round: as the head
// that turns a row of numbers into a score for every token.
#include <array>
#include <cstdio>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "qwen/config.h"
#include "qwen/counted.h"
#include "qwen/embedding.h"
#include "qwen/printable.h"
#include "qwen/program.h"
#include "qwen/tokenizer.h"
#include "qwen/utf8.h"
#include "qwen/weights.h"

using namespace qwen;

namespace {

// A token as it is printed: in quotes where it is text, its bytes where it is part of a character.
std::string shown(const std::string& bytes) {
  if (bytes.empty()) return "nothing";
  const bool is_text = repair_utf8(bytes) == bytes;
  std::string out;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    char hex[8];
    std::snprintf(hex, sizeof hex, "<%02X>", static_cast<unsigned>(value));
    out += is_text && value >= 0x20 ? std::string(1, byte) : hex;
  }
  return is_text ? "\"" + out + "\"" : out;
}

std::string shown(const Tokenizer& tokenizer, const std::vector<int>& ids) {
  const auto text = [&](int id) {
    return id >= 0 && id < vocabulary_size(tokenizer) ? tokenizer.tokens[id] : "";
  };
  std::string out;
  for (const int id : ids) out += (out.empty() ? "" : " ") + shown(text(id));
  return out;
}

std::string numbers(const std::vector<int>& ids) {
  std::string out;
  for (const int id : ids) out += (out.empty() ? "" : " ") + std::to_string(id);
  return out;
}

void show_words(const Tokenizer& tokenizer, const std::string& text) {
  std::printf("%-12s %-24s %s\n", "word", "ids", "tokens");
  for (const std::string_view word : pretokenize(tokenizer.splits, text)) {
    std::vector<int> ids;
    encode_word(tokenizer.bpe, word, ids);
    std::printf("%-12s %-24s %s\n", shown(std::string(word)).c_str(), numbers(ids).c_str(),
                shown(tokenizer, ids).c_str());
  }
}

void show_merges(const Tokenizer& tokenizer, const std::string& word) {
  std::printf("\nmerging %s\n", shown(word).c_str());
  std::vector<int> ids = plain::byte_ids(tokenizer.bpe, word);
  do {
    std::printf("  %s\n", shown(tokenizer, ids).c_str());
  } while (plain::merge_once(tokenizer.bpe, ids));
  std::printf("\n");
}

void show_stream(const Tokenizer& tokenizer, const std::string& text) {
  std::printf("\nthe ids of %s, decoded as they come\n", shown(text).c_str());
  TextStream stream;
  for (const int id : encode(tokenizer, text)) {
    const std::string out = decode_next(tokenizer, stream, id);
    std::printf("  %6d gives %s\n", id, shown(out).c_str());
  }
}

void show_marker(const Tokenizer& tokenizer, const std::string& marker) {
  const auto as_text = encode(tokenizer, marker, AddedTokens::as_text);
  std::printf("\n%s as a marker: id %s; as a user's text: %s\n", marker.c_str(),
              numbers(encode(tokenizer, marker)).c_str(), counted(as_text.size(), "id").c_str());
}

// x [T, hidden_size], table [vocab_size, hidden_size] -> [T]: for each row of x the row of the
// table with the largest dot product. (Chapter 4 is about doing this fast.)
struct Best {
  int id = -1;
  double score = 0;
};
std::vector<Best> best_rows(const Tensor2& x, const Weight& table) {
  std::vector<Best> best(dim(x, 0));
  for (int n = 0; n < table.rows; ++n) {
    const Tensor2 w = embed(table, std::array{n});  // [1, hidden_size]
    for (int t = 0; t < dim(x, 0); ++t) {
      const double score = std::inner_product(row(w, 0), row(w, 0) + dim(w, 1), row(x, t), 0.0);
      if (best[t].id < 0 || score > best[t].score) best[t] = {n, score};
    }
  }
  return best;
}

void show_rows(const std::string& model, const Tokenizer& tokenizer, const std::vector<int>& ids) {
  const Config config = read_config(model);
  const Weight table = matrix(open_checkpoint(model), "model.embed_tokens.weight",
                              config.vocab_size, config.hidden_size);
  const Tensor2 x = embed(table, ids);
  std::printf("\nids [%zu] -> rows [%d, %d] of a table [%d, %d]\n", ids.size(), dim(x, 0),
              dim(x, 1), table.rows, table.cols);
  const std::vector<Best> best = best_rows(x, table);

  int found = 0;
  std::printf("%6s  %-12s %-28s %s\n", "id", "token", "row", "best of all rows");
  for (int t = 0; t < dim(x, 0); ++t) {
    found += best[t].id == ids[t];
    std::printf("%6d  %-12s %7.3f %7.3f %7.3f …    %d with %.3f\n", ids[t],
                shown(tokenizer, {ids[t]}).c_str(), x(t, 0), x(t, 1), x(t, 2), best[t].id,
                best[t].score);
  }
  std::printf("\nUsed as the head, the table gives back %d of %d ids.\n", found, dim(x, 0));
}

void show(const std::string& model, const std::string& text) {
  const Tokenizer tokenizer = load_tokenizer(model);
  for (const std::string& remark : tokenizer.remarks) std::cerr << on_one_line(remark) << "\n";
  const std::vector<int> ids = encode(tokenizer, text);
  if (!tokenizer.sentencepiece) {
    show_words(tokenizer, tokenizer.nfc ? nfc(repair_utf8(text)) : repair_utf8(text));
    show_merges(tokenizer, " then");
  }
  std::printf("the text again: %s\n", shown(decode(tokenizer, ids)).c_str());
  show_stream(tokenizer, "a☃");
  show_marker(tokenizer, "<|im_end|>");
  show_rows(model, tokenizer, ids);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Chapter 2: from text to token ids to rows of numbers, and back."};
  std::string model, text = "The others went in then: 17 hens.";
  add_model_option(app, model);
  app.add_option("--text", text, "the text to take apart")->capture_default_str();
  return run_program(app, argc, argv, [&] { show(model, text); });
}
