#include "qwen/file.h"
#include "qwen/json.h"
#include "tests/support.h"

using namespace qwen;

namespace {

std::string nested(int depth, const std::string& open, const std::string& close) {
  std::string text;
  for (int i = 0; i < depth; ++i) text += open;
  text += "1";
  for (int i = 0; i < depth; ++i) text += close;
  return text;
}

}  // namespace

TEST_CASE("file: the bytes of a file, which outlive its name") {
  const TempDir folder;
  const std::string path = folder.write("a.txt", "three");
  const auto file = map_file(path);
  std::filesystem::remove(path);
  CHECK(text(*file) == "three");
  CHECK(file->path() == path);
}

TEST_CASE("file: an empty file has no bytes") {
  const TempDir folder;
  const auto file = map_file(folder.write("empty", ""));
  CHECK(file->size() == 0);
  CHECK(text(*file).empty());
}

TEST_CASE("file: what cannot be read is named with the reason") {
  const TempDir folder;
  check_throws_with([&] { map_file(folder.path() + "/none"); },
                    "cannot read " + folder.path() + "/none: No such file or directory");
  check_throws_with([&] { map_file(folder.path()); },
                    "cannot read " + folder.path() + ": not a regular file");
}

TEST_CASE("json: 100,000 nested arrays or objects are one line, as is text that only opens them") {
  for (const auto& [open, close] : {std::pair{"[", "]"}, {"{\"a\":", "}"}, {"[", ""}}) {
    const std::string deep = nested(100'000, open, close);
    check_throws_with([&] { parse_json(deep, "f.json"); },
                      "f.json: JSON nested more than 100 deep");
    check_throws_with([&] { parse_ordered_json(deep, "f.json"); },
                      "f.json: JSON nested more than 100 deep");
  }
  CHECK(parse_json(nested(100, "[", "]"), "f.json").is_array());
}

TEST_CASE("json: an ordered object of 100,000 members is one line, and no wait") {
  const auto members = [](int count) {
    std::string text;
    for (int i = 0; i < count; ++i) {
      text += (i == 0 ? "{\"k" : ",\"k") + std::to_string(i) + "\":{\"a\":[1]}";
    }
    return text + "}";
  };
  const std::string many = members(100'000);
  const std::string said = "f.json: a JSON object of more than 1000 members";
  check_throws_with([&] { parse_ordered_json(many, "f.json"); }, said);
  check_throws_with([&] { parse_ordered_json("[{},[" + many + "]]", "f.json"); }, said);
  CHECK(parse_json(many, "f.json").size() == 100'000);
  const std::string few = members(1000);
  CHECK(parse_ordered_json("[" + few + "," + few + "]", "f.json")[1].size() == 1000);
}

TEST_CASE("json: brackets in a string are no depth") {
  CHECK(parse_json("\"" + std::string(1000, '[') + "\"", "f.json").is_string());
}

TEST_CASE("json: a syntax error names file, line and byte") {
  check_throws_with([] { parse_json("{\n\"a\": 1,\n}", "f.json"); },
                    "f.json: not valid JSON, see line 3 (byte 11)");
  check_throws_with([] { parse_json("", "f.json"); }, "f.json: not valid JSON, see byte 1");
  check_throws_with([] { parse_json("1e999", "f.json"); }, "beyond the range of a double");
  check_throws_with([] { parse_json("\"\xFF\"", "f.json"); }, "not valid JSON");
  check_throws_with([] { parse_json("\xEF\xBB\xBF{}", "f.json"); }, "byte order mark");
  check_throws_with([] { parse_json(std::string_view("{}\0x", 4), "f.json"); },
                    "not valid JSON, see byte 3");
}

TEST_CASE("json: the ordered kind keeps the order of members") {
  CHECK(parse_ordered_json(R"({"b":1,"a":2})", "f.json").dump() == R"({"b":1,"a":2})");
  CHECK(parse_json(R"({"b":1,"a":2})", "f.json").dump() == R"({"a":2,"b":1})");
}

TEST_CASE("json: a file is read and named") {
  const TempDir folder;
  CHECK(read_json(folder.write("a.json", "[1, 2]")).size() == 2);
  CHECK(read_ordered_json(folder.write("b.json", "{}")).empty());
  check_throws_with([&] { read_json(folder.write("c.json", "[")); },
                    folder.path() + "/c.json: not valid JSON");
}

TEST_CASE("json: getters give what is there") {
  const Json value =
      parse_json(R"({"s":"x","b":true,"n":1e-6,"i":-3,"l":[1,2],"o":{"k":7},"z":null})", "f.json");
  const JsonObject json(value, "f.json");
  CHECK(json.string("s") == "x");
  CHECK(json.boolean("b"));
  CHECK(json.number("n") == 1e-6);
  CHECK(json.number("i") == -3);
  CHECK(json.integer("i", -5, 5) == -3);
  CHECK(json.integers("i", -5, 5) == std::vector<std::int64_t>{-3});
  CHECK(json.integers("l", 1, 2) == std::vector<std::int64_t>{1, 2});
  CHECK(json.object("o").integer("k", 0, 9) == 7);
  CHECK(json.array("l").size() == 2);
  CHECK(json.has("s"));
  CHECK_FALSE(json.has("z"));
  CHECK_FALSE(json.has("none"));
}

TEST_CASE("json: a getter names source, key, what was found and what was expected") {
  const Json value = parse_json(
      R"({"s":"x","i":2147483648,"u":18446744073709551615,"f":2.0,"l":[1,"2"],"o":{"k":7},"z":null})",
      "f.json");
  const JsonObject json(value, "f.json");
  const auto throws = [](auto get, std::string_view part) {
    check_throws_with([&] { static_cast<void>(get()); }, part);
  };
  throws([&] { return json.string("k"); }, "f.json: k is missing, expected a string");
  throws([&] { return json.string("z"); }, "f.json: z is null, expected a string");
  throws([&] { return json.boolean("s"); }, "f.json: s is \"x\", expected true or false");
  throws([&] { return json.number("s"); }, "f.json: s is \"x\", expected a number");
  throws([&] { return json.integer("i", 1, 99); },
         "f.json: i is 2147483648, expected an integer from 1 to 99");
  throws([&] { return json.integer("u", -1, 99); },
         "f.json: u is 18446744073709551615, expected an integer from -1 to 99");
  throws([&] { return json.integer("f", 1, 99); },
         "f.json: f is 2.0, expected an integer from 1 to 99");
  throws([&] { return json.integers("l", 1, 9); },
         "f.json: l is [1,\"2\"], expected an integer from 1 to 9 or a list of them");
  throws([&] { return json.array("o"); }, "f.json: o is {\"k\":7}, expected an array");
  throws([&] { return json.object("s"); }, "f.json: s is \"x\", expected an object");
  throws([&] { return json.object("o").string("k"); }, "f.json: o: k is 7, expected a string");
  throws([&] { return JsonObject(value["l"], "f.json"); }, "f.json: found [1,\"2\"], expected a");
}

TEST_CASE("json: of members with the same key the last counts, and those before can be asked for") {
  const std::string text = R"({"a":1,"b":[{"c":2,"c":[3]}],"a":{"d":4,"d":5},"a":null})";
  std::vector<Replaced> replaced;
  const Json json = parse_json(text, "f.json", replaced);
  CHECK(json.dump() == R"({"a":null,"b":[{"c":[3]}]})");
  CHECK(parse_json(text, "f.json") == json);
  CHECK(parse_ordered_json(text, "f.json").dump() == R"({"a":null,"b":[{"c":[3]}]})");
  using Path = std::vector<std::string>;
  REQUIRE(replaced.size() == 4);
  CHECK(replaced[0].path == Path{"b", "", "c"});
  CHECK(replaced[0].value == 2);
  CHECK(replaced[1].path == Path{"a"});
  CHECK(replaced[1].value == 1);
  CHECK(replaced[2].path == Path{"a", "d"});
  CHECK(replaced[3].path == Path{"a"});
  CHECK(replaced[3].value.dump() == R"({"d":5})");
}

TEST_CASE("json: an ordered text with integers of any length is written as it was") {
  const std::string text =
      R"({"b":[-100000000000000000001,18446744073709551616,1],"a":"ü\n","c":{},"d":[]})";
  const OrderedJson json = parse_ordered_json(text, "f.json");
  CHECK(json_text(json) == text);
  CHECK(big_integer(json["b"][0]) == "-100000000000000000001");
  CHECK_FALSE(big_integer(json["b"][2]));
  CHECK(shown(json) ==
        R"({"b":[-100000000000000000001,18446744073709551616,1],"a":"\u00fc\n","c":{},"d":[]})");
  CHECK(json_text(json, 2) == R"({
  "b": [
    -100000000000000000001,
    18446744073709551616,
    1
  ],
  "a": "ü\n",
  "c": {},
  "d": []
})");
  // Others than the ordered kind round it, as they always did; as a number it is one for both.
  CHECK(parse_json("[18446744073709551616]", "f.json")[0] == 18446744073709551616.0);
  const Json object = parse_ordered_json(R"({"n":100000000000000000000})", "f.json");
  CHECK(JsonObject(object, "f.json").number("n") == 1e20);
  check_throws_with([&] { JsonObject(object, "f.json").integer("n", 0, 9); },
                    "f.json: n is 100000000000000000000, expected an integer from 0 to 9");
}

TEST_CASE("json: long and strange values are shown short and on one line") {
  CHECK(shown(Json("a\nb")) == "\"a\\nb\"");
  CHECK(shown(Json(std::string(5000, 'x'))).size() < 200);
}
