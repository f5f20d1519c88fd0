#include <sentencepiece_processor.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>

#include "qwen/gguf_file.h"
#include "qwen/json.h"
#include "qwen/tokenizer.h"
#include "qwen/utf8.h"
#include "tests/support.h"

using namespace qwen;
namespace fs = std::filesystem;

namespace {

std::string unhex(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::string text_of(const Json& entry) {
  return entry.contains("text") ? entry["text"].get<std::string>()
                                : unhex(entry["bytes"].get<std::string>());
}

std::string in_pieces(const Tokenizer& tokenizer, const std::vector<int>& ids) {
  TextStream stream;
  std::string text;
  for (const int id : ids) {
    const std::string part = decode_next(tokenizer, stream, id);
    CHECK(part == repair_utf8(part));  // each part is valid by itself
    text += part;
  }
  return text + finish(stream);
}

// ---- GGUF files that hold a vocabulary ----

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::string gguf_text(const std::string& text) {
  return raw<std::uint64_t>(text.size()) + text;
}
std::string type(GgufType t) {
  return raw(static_cast<std::uint32_t>(t));
}
std::string gguf_string(const std::string& key, const std::string& value) {
  return gguf_text(key) + type(GgufType::String) + gguf_text(value);
}
std::string gguf_number(const std::string& key, std::uint32_t value) {
  return gguf_text(key) + type(GgufType::U32) + raw(value);
}
std::string gguf_strings(const std::string& key, const std::vector<std::string>& values) {
  std::string bytes = gguf_text(key) + type(GgufType::Array) + type(GgufType::String) +
                      raw<std::uint64_t>(values.size());
  for (const std::string& value : values) bytes += gguf_text(value);
  return bytes;
}
std::string gguf_numbers(const std::string& key, const std::vector<std::int32_t>& values) {
  std::string bytes = gguf_text(key) + type(GgufType::Array) + type(GgufType::I32) +
                      raw<std::uint64_t>(values.size());
  for (const std::int32_t value : values) bytes += raw(value);
  return bytes;
}
std::string gguf(const std::vector<std::string>& metadata) {
  std::string bytes =
      "GGUF" + raw<std::uint32_t>(3) + raw<std::uint64_t>(0) + raw<std::uint64_t>(metadata.size());
  for (const std::string& entry : metadata) bytes += entry;
  return bytes;
}

// The vocabulary of tokenizers/pair, then a marker, an added word, an unused token and a filler.
std::string gguf_vocabulary(const std::string& pre) {
  const Json vocab = read_json("tokenizers/pair/vocab.json");
  std::vector<std::string> tokens(vocab.size());
  for (const auto& [token, id] : vocab.items()) tokens[id.get<std::size_t>()] = token;
  std::vector<std::int32_t> types(tokens.size(), 1);
  const int n = static_cast<int>(tokens.size());
  const std::string filler = "[PAD" + std::to_string(n + 3) + "]";
  tokens.insert(tokens.end(), {"<end>", "<word>", "<unused>", filler});
  types.insert(types.end(), {3, 4, 5, 4});
  std::vector<std::string> merges;
  std::ifstream file("tokenizers/pair/merges.txt");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("#version")) merges.push_back(line);
  }
  return gguf({gguf_string("tokenizer.ggml.model", "gpt2"), gguf_string("tokenizer.ggml.pre", pre),
               gguf_strings("tokenizer.ggml.tokens", tokens),
               gguf_numbers("tokenizer.ggml.token_type", types),
               gguf_strings("tokenizer.ggml.merges", merges),
               gguf_number("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(n))});
}

// Every text of tokenizer_cases.json: ids, ids with added tokens off, text again. Says how many
// texts with letters newer than Unicode 14 came out differently.
void check_cases(const Tokenizer& tokenizer, const std::string& name) {
  const Json cases = read_json("tokenizer_cases.json")["cases"];
  REQUIRE(cases.size() >= 300);
  int newer_and_different = 0;
  for (const Json& entry : cases) {
    const std::string text = text_of(entry);
    const auto expected = entry[name].get<std::vector<int>>();
    const auto as_text = entry.value(name + " as text", expected);
    const auto ids = encode(tokenizer, text);
    if (entry.contains("newer") && ids != expected) {
      ++newer_and_different;
      continue;
    }
    INFO(name << ": " << entry.dump());
    if (!tokenizer.sentencepiece) CHECK(ids == expected);  // that library knows no added tokens
    CHECK(encode(tokenizer, text, AddedTokens::as_text) == as_text);
    const std::string decoded = entry.value(name + " decoded", repair_utf8(text));
    CHECK(decode(tokenizer, expected) == decoded);
    CHECK(in_pieces(tokenizer, expected) == decoded);
  }
  MESSAGE(newer_and_different << " texts differ by letters newer than Unicode 14");
}

}  // namespace

TEST_CASE("tokenizer: Qwen3.5's ids are those of the tokenizers library") {
  const std::string path =
      built_input("QWEN_TOKENIZER_DIR", "tokenizers/qwen3.5",
                  "build/venv/bin/python tools/make_tokenizer.py qwen3.5 build/tokenizers/qwen3.5");
  const Tokenizer tokenizer = load_tokenizer(path);
  check_cases(tokenizer, "qwen3.5");
  CHECK(vocabulary_size(tokenizer) == 248077);
  CHECK(token_id(tokenizer, "<|endoftext|>") == 248044);
  CHECK(token_id(tokenizer, "<|im_end|>") == 248046);
  CHECK(token_id(tokenizer, "<|no_such|>") == std::nullopt);
  CHECK(tokenizer.eos == std::vector<int>{248046});
  CHECK(tokenizer.bos == -1);
  // The head has 248,320 rows: ids beyond the vocabulary can be drawn, and are nothing.
  CHECK(decode(tokenizer, std::vector<int>{9419, 248319, 1814, 248320, -1}) == "Hello world");
}

TEST_CASE("tokenizer: SmolLM2's ids, from its GGUF file, are those of the tokenizers library") {
  const std::string folder = "models/smollm2-135m-instruct";
  const std::string path =
      built_input("QWEN_SMOLLM2", folder + "/SmolLM2-135M-Instruct.Q4_1.gguf",
                  "tools/get_model.py smollm2-135m-instruct --out build/" + folder);
  const Tokenizer tokenizer = load_tokenizer(path);
  check_cases(tokenizer, "smollm2");
  CHECK(vocabulary_size(tokenizer) == 49152);
  CHECK(tokenizer.eos == std::vector<int>{2});
}

TEST_CASE("tokenizer: added tokens with every flag match as in the tokenizers library") {
  check_cases(load_tokenizer("tokenizers/small"), "small");
}

TEST_CASE("tokenizer: vocab.json and merges.txt give the ids of transformers' Qwen2Tokenizer") {
  check_cases(load_tokenizer("tokenizers/pair"), "pair");
}

TEST_CASE("tokenizer: a SentencePiece model's ids are those of the sentencepiece library") {
  const Tokenizer tokenizer = load_tokenizer("tokenizers/pieces");
  check_cases(tokenizer, "pieces");
  CHECK(tokenizer.eos == std::vector<int>{2});
  // Control symbols are markers, found in text only where added tokens are.
  const int end = *token_id(tokenizer, "<|im_end|>");
  CHECK(encode(tokenizer, "<|im_end|>") == std::vector<int>{end});
  CHECK(decode(tokenizer, std::vector<int>{end}) == "");
}

TEST_CASE("tokenizer: the ids of the model in the box are those of transformers' AutoTokenizer") {
  const Tokenizer tokenizer = load_tokenizer("../../models/tiny");
  check_cases(tokenizer, "tiny");
  const Json cases = read_json("tokenizer_cases.json")["cases"];
  for (const Json& entry : cases) {
    INFO(entry.dump());
    CHECK(encode(tokenizer, text_of(entry)) == entry["tiny"].get<std::vector<int>>());
  }
}

TEST_CASE("tokenizer: the small checkpoint's last id has no token") {
  const Tokenizer tokenizer = load_tokenizer("checkpoints/tiny/model.safetensors");
  CHECK(vocabulary_size(tokenizer) == 262);
  CHECK(decode(tokenizer, encode(tokenizer, "the hen ☃ über")) == "the hen ☃ über");
  CHECK(tokenizer.eos == std::vector<int>{1});
}

TEST_CASE("tokenizer: merges as strings give the ids of merges as pairs") {
  Json json = read_json("tokenizers/small/tokenizer.json");
  for (Json& merge : json["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  const TempDir folder;
  folder.write("tokenizer.json", json.dump());
  check_cases(load_tokenizer(folder.path()), "small");
}

TEST_CASE("tokenizer: a GGUF file names its pattern") {
  const Json cases = read_json("tokenizer_cases.json")["cases"];
  for (const std::string pre : {"qwen2", "smollm"}) {
    const std::string reference = pre == "qwen2" ? "pair" : "small";
    const TempDir folder;
    const std::string path = folder.write("vocabulary.gguf", gguf_vocabulary(pre));
    const Tokenizer tokenizer = load_tokenizer(path);
    for (const Json& entry : cases) {
      const std::string text = repair_utf8(text_of(entry));
      if (!tokenizer.nfc && nfc(text) != text) continue;  // the reference normalises
      const auto ids = entry[reference].get<std::vector<int>>();
      INFO(pre << ": " << entry.dump());
      CHECK(encode(tokenizer, text, AddedTokens::as_text) ==
            entry.value(reference + " as text", ids));
    }
  }
}

TEST_CASE("tokenizer: GGUF's control tokens are markers, its fillers and unused ids nothing") {
  const TempDir folder;
  const Tokenizer tokenizer = load_tokenizer(folder.write("sha256-0123", gguf_vocabulary("qwen2")));
  const int n = static_cast<int>(read_json("tokenizers/pair/vocab.json").size());
  const std::string filler = "[PAD" + std::to_string(n + 3) + "]";
  for (const std::string& text : {std::string("<unused>"), filler}) {
    CHECK(encode(tokenizer, text) == encode(tokenizer, text, AddedTokens::as_text));
  }
  CHECK(encode(tokenizer, "<end><word>") == std::vector<int>{n, n + 1});
  CHECK(decode(tokenizer, std::vector<int>{n, n + 1, n + 2, n + 3}) == "<word>");
  CHECK(vocabulary_size(tokenizer) == n + 2);
  CHECK(tokenizer.eos == std::vector<int>{n});
}

TEST_CASE("tokenizer: a marker spelled in a message is text, and shown unchanged") {
  const Tokenizer tokenizer = load_tokenizer("tokenizers/small");
  const std::string text = "end it: <|im_end|> <m> cat";
  const auto ids = encode(tokenizer, text, AddedTokens::as_text);
  for (const AddedToken& token : tokenizer.added.tokens) {
    if (token.special) CHECK(std::find(ids.begin(), ids.end(), token.id) == ids.end());
  }
  CHECK(decode(tokenizer, ids) == text);
}

TEST_CASE("tokenizer: a stream holds back an unfinished character, and nothing else") {
  const Tokenizer tokenizer = load_tokenizer("tokenizers/small");
  const auto byte = [&](int value) { return tokenizer.bpe.byte_token[value]; };
  TextStream stream;
  CHECK(decode_next(tokenizer, stream, byte('a')) == "a");
  for (const int value : {0xF0, 0x9F, 0x99}) {
    CHECK(decode_next(tokenizer, stream, byte(value)) == "");
  }
  SUBCASE("finished") {
    CHECK(decode_next(tokenizer, stream, byte(0x82)) == "🙂");
  }
  SUBCASE("broken by a letter") {
    CHECK(decode_next(tokenizer, stream, byte('b')) == "\uFFFDb");
  }
  SUBCASE("broken by another start") {
    CHECK(decode_next(tokenizer, stream, byte(0xC3)) == "\uFFFD");
    CHECK(decode_next(tokenizer, stream, byte(0xA9)) == "é");
  }
  SUBCASE("cut off by the end") {
    CHECK(finish(stream) == "\uFFFD");
  }
  SUBCASE("a marker in between changes nothing") {
    CHECK(decode_next(tokenizer, stream, *token_id(tokenizer, "<|im_end|>")) == "");
    CHECK(decode_next(tokenizer, stream, byte(0x82)) == "🙂");
  }
  CHECK(finish(stream) == "");
}

TEST_CASE("tokenizer: any cut of a text into ids decodes, as a stream, to valid UTF-8") {
  const Tokenizer tokenizer = load_tokenizer("tokenizers/small");
  const auto ids = encode(tokenizer, "a 🙂 é字 end", AddedTokens::as_text);
  for (std::size_t end = 0; end <= ids.size(); ++end) {
    const std::vector<int> part(ids.begin(), ids.begin() + static_cast<long>(end));
    CHECK(in_pieces(tokenizer, part) == decode(tokenizer, part));
  }
}

TEST_CASE("tokenizer: bytes that are no UTF-8 are what Python's replace makes of them") {
  CHECK(repair_utf8("a\xFFz") == "a\uFFFDz");
  CHECK(repair_utf8("\xF0\x9F\x99") == "\uFFFD");              // one start of a character
  CHECK(repair_utf8("\xED\xA0\x80") == "\uFFFD\uFFFD\uFFFD");  // a surrogate
  CHECK(repair_utf8("\xE2\x82(") == "\uFFFD(");
  CHECK(repair_utf8("\xF4\x90\x80\x80") == "\uFFFD\uFFFD\uFFFD\uFFFD");  // above U+10FFFF
}

TEST_CASE("tokenizer: normal form C") {
  CHECK(nfc("e\u0301") == "é");
  CHECK(nfc("a\u0301\u0323") == "\u1EA1\u0301");  // marks in the order of their classes
  CHECK(nfc("\u1100\u1161\u11A8") == "\uAC01");   // Hangul is composed by arithmetic
  CHECK(nfc("\u0958") == "\u0915\u093C");         // excluded from composition
  CHECK(nfc("\u212B") == "\u00C5");
  CHECK(nfc("plain, \u00E9 and \u00FF") == "plain, \u00E9 and \u00FF");
  // A mark younger than Unicode 9 is ordered here; the tokenizers library 0.23 takes it for a
  // letter.
  CHECK(nfc("a\U00011839\u0334") == "a\u0334\U00011839");
}

TEST_CASE("tokenizer: white space is the property White_Space") {
  const std::vector<Split> splits = {make_split(R"(\s+)", "a test"),
                                     make_split(R"([^\S\n]x)", "a test")};
  const auto pieces = [&](const char* text) { return pretokenize(splits, text).size(); };
  CHECK(pieces("a\u0085z") == 3);
  CHECK(pieces("a\u2028\u3000z") == 3);
  CHECK(pieces("a\u180Ez") == 1);  // white space for PCRE2
  CHECK(pieces("a\u001Cz") == 1);  // white space for Python
}

TEST_CASE("tokenizer: a rule cuts at matches, empty ones included, and keeps all text") {
  const auto cut_by = [](const char* pattern, const char* text) {
    return pretokenize({make_split(pattern, "a test")}, text);
  };
  using Pieces = std::vector<std::string_view>;
  CHECK(cut_by("b+", "abba") == Pieces{"a", "bb", "a"});
  CHECK(cut_by("(?=é)", "aéé") == Pieces{"a", "é", "é"});
  CHECK(cut_by("x*", "ab") == Pieces{"a", "b"});
  CHECK(cut_by("x", "") == Pieces{});
  CHECK(cut_by(literal_pattern("a.b").c_str(), "axba.b") == Pieces{"axb", "a.b"});
}

TEST_CASE("tokenizer: a megabyte of one thing is encoded in seconds") {
  const Tokenizer tokenizer = load_tokenizer("tokenizers/small");
  const Tokenizer pieces = load_tokenizer("tokenizers/pieces");
  for (const char* unit : {"a", " ", "\n", " \n", "7", "<", "<|im_", "'", "\u0301", "\u0301\u0323",
                           "\u00A0", "🙂", "\xFF", "字"}) {
    std::string text;
    while (text.size() < 1000000) text += unit;
    CHECK(decode(tokenizer, encode(tokenizer, text)) == nfc(repair_utf8(text)));
    CHECK(decode(pieces, encode(pieces, text)) == repair_utf8(text));
  }
}

TEST_CASE("tokenizer: what a file gets wrong is said in one line") {
  const Json good = read_json("tokenizers/small/tokenizer.json");
  const auto refused = [](const Json& json, const char* part) {
    const TempDir folder;
    folder.write("tokenizer.json", json.dump());
    check_throws_with([&] { load_tokenizer(folder.path()); }, part);
  };
  const auto with = [&](const char* place, const Json& value) {
    Json json = good;
    json[Json::json_pointer(place)] = value;
    return json;
  };
  refused(with("/model/merges/0", "a b c"), "expected two tokens with one space between them");
  refused(with("/model/merges/0", 7), "a merge is 7");
  refused(with("/model/merges/0", {"a", "no such\ntoken"}), "needs the token \"no such\\ntoken\"");
  refused(with("/model/merges/0", {"z", "q"}), "needs the token \"zq\"");
  refused(with("/model/merges", Json::array()), "no merges");
  refused(with("/model/merges", 1), "merges");
  refused(with("/model/vocab", Json::array()), "vocab");
  refused(with("/model/vocab/a", -1), "the id of \"a\" is -1");
  refused(with("/model/vocab/a", 4000000000u), "the id of \"a\" is 4000000000");
  refused(with("/model/vocab/a", 5), "have the same id 5");
  refused(with("/model/type", "WordPiece"), "\"BPE\"");
  refused(with("/model/byte_fallback", true), "tokenizer.model");
  refused(with("/model/unk_token", "nothing"), "unk_token needs the token \"nothing\"");
  refused(with("/model/end_of_word_suffix", "</w>"), "end_of_word_suffix");
  refused(with("/normalizer/type", "NFKC"), "\"NFC\"");
  refused(with("/pre_tokenizer/pretokenizers/0/type", "Metaspace"), "Metaspace");
  refused(with("/pre_tokenizer", nullptr), "ByteLevel");
  refused(with("/pre_tokenizer/pretokenizers/1/add_prefix_space", true), "add_prefix_space");
  refused(with("/pre_tokenizer/pretokenizers/0", {{"type", "Split"}, {"behavior", "Removed"}}),
          "Isolated");
  refused(with("/pre_tokenizer/pretokenizers/0",
               {{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", "(a"}}}}),
          "the pattern \"(a\" cannot be compiled: missing closing parenthesis");
  refused(with("/pre_tokenizer/pretokenizers/0",
               {{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", "(\n\x1b"}}}}),
          "the pattern \"(\\n\\x1b\" cannot be compiled");
  refused(with("/added_tokens/0/id", 1 << 20),
          "id is 1048576, expected an integer from 0 to 1048575");
  refused(with("/model/vocab/a", (1 << 24) - 1), "the id of \"a\" is 16777215");
  refused(with("/added_tokens/0/content", 1), "content");
}

TEST_CASE("tokenizer: what a GGUF file gets wrong is said in one line") {
  const TempDir folder;
  const auto refused = [&](const std::string& bytes, const char* part) {
    const std::string path = folder.write("v.gguf", bytes);
    check_throws_with([&] { load_tokenizer(path); }, part);
  };
  refused(gguf_vocabulary("gpt-17"), "pre is \"gpt-17\", expected one of qwen35, qwen2");
  refused(gguf({gguf_string("tokenizer.ggml.model", "llama")}), "tokenizer.model beside the file");
  refused(gguf({gguf_string("tokenizer.ggml.model", "gpt2")}), "tokenizer.ggml.tokens is missing");
  const auto small = [](const std::vector<std::string>& more) {
    std::vector<std::string> entries = {gguf_string("tokenizer.ggml.model", "gpt2"),
                                        gguf_strings("tokenizer.ggml.tokens", {"a", "b"})};
    entries.insert(entries.end(), more.begin(), more.end());
    return gguf(entries);
  };
  refused(small({}), "token_type is missing");
  refused(small({gguf_numbers("tokenizer.ggml.token_type", {1})}), "has 1 entries, expected 2");
  const std::string types = gguf_numbers("tokenizer.ggml.token_type", {1, 1});
  refused(small({types}), "merges is missing");
  refused(small({types, gguf_strings("tokenizer.ggml.merges", {"ab"})}), "\"ab\"");
  refused(small({types, gguf_strings("tokenizer.ggml.merges", {"a b"})}), "needs the token \"ab\"");
  refused(small({types, gguf_strings("tokenizer.ggml.merges", {}),
                 gguf_number("tokenizer.ggml.eos_token_id", 2)}),
          "eos_token_id is 2, expected an id below 2");
}

TEST_CASE(
    "tokenizer: a GGUF file's text starts with BOS where the file or its vocabulary says so") {
  const auto bos = [](const std::string& pre, const std::vector<std::string>& more) {
    std::vector<std::string> entries = {gguf_string("tokenizer.ggml.model", "gpt2"),
                                        gguf_string("tokenizer.ggml.pre", pre),
                                        gguf_strings("tokenizer.ggml.tokens", {"a", "b", "<s>"}),
                                        gguf_numbers("tokenizer.ggml.token_type", {1, 1, 3}),
                                        gguf_strings("tokenizer.ggml.merges", {}),
                                        gguf_number("tokenizer.ggml.bos_token_id", 2)};
    entries.insert(entries.end(), more.begin(), more.end());
    const TempDir folder;
    return load_tokenizer(folder.write("v.gguf", gguf(entries))).bos;
  };
  const auto says = [](char value) {
    return gguf_text("tokenizer.ggml.add_bos_token") + type(GgufType::Bool) + value;
  };
  CHECK(bos("llama-bpe", {}) == 2);
  CHECK(bos("llama-bpe", {says(0)}) == -1);
  CHECK(bos("qwen2", {}) == -1);
  CHECK(bos("qwen2", {says(1)}) == 2);
}

TEST_CASE("tokenizer: a GGUF file with a llama tokenizer takes the tokenizer.model beside it") {
  const Tokenizer alone = load_tokenizer("tokenizers/pieces");
  const TempDir folder;
  fs::copy("tokenizers/pieces/tokenizer.model", folder.path() + "/tokenizer.model");
  const std::string model = gguf_string("tokenizer.ggml.model", "llama");
  const std::string text = "the hen <|im_end|>";
  CHECK(encode(load_tokenizer(folder.write("v.gguf", gguf({model}))), text) == encode(alone, text));

  // With its list of pieces, a token more, and the ends.
  std::vector<std::string> pieces;
  for (int id = 0; id < vocabulary_size(alone); ++id) {
    pieces.push_back(alone.sentencepiece->IdToPiece(id));
  }
  const auto listed = [&](const std::vector<std::string>& tokens) {
    std::vector<std::int32_t> types(tokens.size(), 1);
    types.back() = 3;
    return folder.write("v.gguf",
                        gguf({model, gguf_strings("tokenizer.ggml.tokens", tokens),
                              gguf_numbers("tokenizer.ggml.token_type", types),
                              gguf_number("tokenizer.ggml.bos_token_id",
                                          static_cast<std::uint32_t>(tokens.size()) - 1)}));
  };
  const int more = static_cast<int>(pieces.size());
  pieces.push_back("<more>");
  const Tokenizer tokenizer = load_tokenizer(listed(pieces));
  CHECK(encode(tokenizer, text) == encode(alone, text));
  CHECK(encode(tokenizer, "<more>") == std::vector<int>{more});
  CHECK(tokenizer.bos == more);

  pieces[5] = "other";
  check_throws_with([&] { load_tokenizer(listed(pieces)); }, "it belongs to another model");
  check_throws_with([&] { load_tokenizer(listed({"<unk>", "<s>"})); }, "has none: it belongs to");
}

TEST_CASE("tokenizer: what is not there is said in one line") {
  const TempDir folder;
  check_throws_with([&] { load_tokenizer(folder.path()); }, "no tokenizer there, expected");
  check_throws_with([&] { load_tokenizer(folder.path() + "/nothing"); },
                    "nothing: No such file or directory");
  folder.write("tokenizer.model", "not a model");
  check_throws_with([&] { load_tokenizer(folder.path()); }, "not a SentencePiece model");
  folder.write("vocab.json", R"({"a": 0, "b": 1, "ab": 2})");
  folder.write("merges.txt", "#version: 0.2\na b\n");
  const TempDir pair;
  pair.write("vocab.json", R"({"#": 0, "b": 1, "##": 2})");
  pair.write("merges.txt", "#version: 0.2\r\n# #\r\n");
  const Tokenizer tokenizer = load_tokenizer(pair.path());
  CHECK(encode(tokenizer, "##b") == std::vector<int>{2, 1});  // "# #" is no comment
  REQUIRE(tokenizer.remarks.size() == 1);
  CHECK(tokenizer.remarks[0].find("as GPT-2 does it") != std::string::npos);
}

TEST_CASE("tokenizer: tokenizer.model must be a regular file of sensible size and content") {
  const TempDir folder;
  const std::string path = folder.path() + "/tokenizer.model";
  const auto refused = [&](const std::string& why) {
    check_throws_with([&] { load_tokenizer(folder.path()); }, path + why);
    fs::remove(path);
  };
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  refused(": not a regular file");
  fs::create_directory(path);
  refused(": not a regular file");
  fs::create_symlink("/dev/zero", path);
  refused(": not a regular file");
  folder.write("tokenizer.model", "");
  fs::resize_file(path, 1 << 30);
  refused(": found 1073741824 bytes, expected a SentencePiece model of at most");
  // Two pieces, "<unk>" (the unknown one) and a NUL.
  using namespace std::string_literals;
  folder.write("tokenizer.model",
               "\x0A\x0E\x0A\x05<unk>\x15\0\0\0\0\x18\x02"
               "\x0A\x0A\x0A\x01\0\x15\0\0\0\0\x18\x01\x12\0\x1A\0"s);
  refused(": not a SentencePiece model: ");
}

TEST_CASE("tokenizer: a byte that is an added token, too, stays in ordinary text") {
  Json json = read_json("tokenizers/small/tokenizer.json");
  const int tilde = json["model"]["vocab"]["~"];
  json["added_tokens"].push_back({{"id", tilde}, {"content", "~"}, {"special", true}});
  const TempDir folder;
  folder.write("tokenizer.json", json.dump());
  const auto ids = encode(load_tokenizer(folder.path()), "x~y", AddedTokens::as_text);
  REQUIRE(ids.size() == 3);
  CHECK(ids[1] == tilde);
}

TEST_CASE("tokenizer: added tokens are found in one pass, however many begin alike") {
  Json json = read_json("tokenizers/small/tokenizer.json");
  Json& added = json["added_tokens"];
  for (int n = 0; n < 10'000; ++n) {
    added.push_back({{"id", 2000 + n}, {"content", "<|s" + std::to_string(n) + "|>"}});
  }
  added.push_back({{"id", 12'000}, {"content", std::string(20'000, '<') + "|"}});
  const TempDir folder;
  folder.write("tokenizer.json", json.dump());
  const Tokenizer tokenizer = load_tokenizer(folder.path());
  const std::string text(100'000, '<');
  const auto start = std::chrono::steady_clock::now();
  CHECK(cut(tokenizer.added, text).size() == 1);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(1));  // was 9
  const auto stretches = cut(tokenizer.added, "<|s123|>" + text + "|<|s7|>");
  REQUIRE(stretches.size() == 4);  // the last letters of the text are the long token
  CHECK(stretches[0].id == 2123);
  CHECK(stretches[1].text.size() == 80'000);
  CHECK(stretches[2].id == 12'000);
  CHECK(stretches[3].id == 2007);
}

TEST_CASE("bpe: merges the earliest learned pair first, of equal pairs the leftmost") {
  // a b c are 0 1 2; bc (3) was learned before ab (4), and abc (5) needs ab.
  Bpe bpe;
  bpe.byte_token.fill(-1);
  for (int n = 0; n < 3; ++n) bpe.byte_token['a' + n] = n;
  bpe.merges = MergeTable(4);
  bpe.merges.add(1, 2, {0, 3});
  bpe.merges.add(0, 1, {1, 4});
  bpe.merges.add(4, 2, {2, 5});
  bpe.merges.add(0, 0, {3, 6});
  const auto ids = [&](const char* word) {
    std::vector<int> out;
    encode_word(bpe, word, out);
    return out;
  };
  CHECK(ids("abc") == std::vector<int>{0, 3});
  CHECK(ids("abac") == std::vector<int>{4, 0, 2});
  CHECK(ids("aaa") == std::vector<int>{6, 0});
  CHECK(ids("") == std::vector<int>{});
  CHECK(ids("xaxbc") == std::vector<int>{0, 3});  // x has no token and is dropped
  bpe.unknown = 9;
  CHECK(ids("xxa") == std::vector<int>{9, 9, 0});
  bpe.fuse_unknown = true;
  CHECK(ids("xxa") == std::vector<int>{9, 0});
  bpe.whole_words = {{"abc", 5}};
  CHECK(ids("abc") == std::vector<int>{5});
}

TEST_CASE("bpe: the list of candidates gives what merging once, again and again, gives") {
  const Tokenizer tokenizer = load_tokenizer("tokenizers/small");
  const Json cases = read_json("tokenizer_cases.json")["cases"];
  for (const Json& entry : cases) {
    const std::string text = repair_utf8(text_of(entry));
    for (const std::string_view word : pretokenize(tokenizer.splits, text)) {
      std::vector<int> ids = plain::byte_ids(tokenizer.bpe, word), fast;
      while (plain::merge_once(tokenizer.bpe, ids)) {
      }
      encode_word(tokenizer.bpe, word, fast);
      CHECK(fast == ids);
    }
  }
}

TEST_CASE("expect_room: refuses no text that fits") {
  const auto fits = [](const Tokenizer& tokenizer, const std::string& text) {
    const int count = static_cast<int>(encode(tokenizer, text, AddedTokens::as_text).size());
    CHECK_NOTHROW(expect_room(tokenizer, text, count));
  };
  const auto repeated = [](const char* piece, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += piece;
    return text;
  };
  for (const char* name : {"small", "pieces"}) {
    const Tokenizer tokenizer = load_tokenizer(std::string("tokenizers/") + name);
    std::size_t longest = 0;
    for (const std::string& token : tokenizer.tokens) {
      longest = std::max(longest, token.size());
      fits(tokenizer, token);
    }
    fits(tokenizer, repeated(" ", 5000));
    fits(tokenizer, repeated("\n", 5000));
    fits(tokenizer, repeated("e\xCC\x81", 5000));                             // é, composed
    fits(tokenizer, repeated("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", 5000));  // 각, composed
    fits(tokenizer, repeated("the ", 5000));
    CAPTURE(name);
    const std::string large(1000 * longest, 'x');
    check_throws_with(
        [&] { expect_room(tokenizer, large, 200); },
        "[tokenizer] a text of " + std::to_string(large.size()) + " bytes is at least ");
    expect_room(tokenizer, large, 1000);
  }
}
