#include <fstream>

#include "qwen/chat_session.h"
#include "qwen/conversation.h"
#include "qwen/hub_cache.h"
#include "qwen/loop_stop.h"
#include "qwen/tables.h"
#include "qwen/utf8.h"
#include "tests/comparisons.h"

using namespace qwen;
namespace fs = std::filesystem;

namespace {

// The small random model: it says nothing sensible, but it says it in a well-defined way.
struct Fixture {
  Model model = load_model("checkpoints/tiny");
  Tokenizer tokenizer = load_tokenizer("checkpoints/tiny");
  ChatSession session{Voice{model, ops(), tokenizer, ChatTemplate{ChatForm::qwen3_5, "", false}},
                      AnswerOptions{{}, 12, 0}, empty_conversation(model.config), AnswerStats{}};

  Fixture() {
    session.options.sampling.temperature = 1;  // so that the seed counts, too
  }

  // Says something and returns the answer.
  std::string hear(const std::string& text) {
    say(session, text);
    return session.conversation.chat.messages.back().content;
  }
  // The logits after everything that is in the sequence.
  Tensor2 next_logits() const {
    Sequence copy = session.conversation.sequence;
    const int some_id = 7;
    return read(model, ops(), copy, {&some_id, 1});
  }
};

std::vector<int> text_ids(const Tokenizer& tokenizer, const std::string& text) {
  return encode(tokenizer, text, AddedTokens::as_text);
}

// What a reader makes of ids: what it shows, as "thought|…" and "content|…", and the message.
struct Heard {
  std::string thought, content, call;
  Message message;
};
Heard hear_ids(const Tokenizer& tokenizer, const Prompt& prompt, const std::vector<int>& ids) {
  Heard heard;
  AnswerReader reader(tokenizer, prompt, [&](Section section, std::string_view text) {
    CHECK(std::string(text) == repair_utf8(text));  // never half a character
    (section == Section::thought   ? heard.thought
     : section == Section::content ? heard.content
                                   : heard.call) += text;
  });
  for (const int id : ids) reader.read(id);
  heard.message = reader.finish();
  return heard;
}

// A tokenizer with all markers, and what it makes of a text with markers in it.
Tokenizer with_markers() {
  Tokenizer tokenizer = load_tokenizer("checkpoints/tiny");
  std::vector<AddedToken> added = tokenizer.added.tokens;
  for (const char* marker : {"<think>", "</think>", "<tool_call>", "</tool_call>"}) {
    const int id = vocabulary_size(tokenizer);
    added.push_back({.content = marker, .id = id});
    tokenizer.tokens.push_back(marker);
    tokenizer.special.push_back(false);
  }
  tokenizer.added = index_added_tokens(added);
  return tokenizer;
}

}  // namespace

TEST_CASE("conversation: every answer is the one that reading all of it anew gives, bit for bit") {
  for (const bool thinking : {false, true}) {
    Fixture going_on;
    going_on.session.conversation.chat.enable_thinking = thinking;
    for (const char* text : {"Hello", "Who are you?", "And now?", "x"}) {
      Fixture anew;
      anew.session.conversation.chat = going_on.session.conversation.chat;
      CHECK(going_on.hear(text) == anew.hear(text));
      CHECK(going_on.session.conversation.sequence.ids == anew.session.conversation.sequence.ids);
      check_same_bits(text, going_on.next_logits(), anew.next_logits());
      CHECK(anew.session.last.known == 0);
    }
  }
}

TEST_CASE("conversation: only the answer before is read again") {
  Fixture at;
  at.hear("Hello, this is a longer first message.");
  CHECK(at.session.last.known == 0);
  CHECK(at.session.last.again == 0);
  CHECK(at.session.last.why == "");
  int history = 0;
  for (const char* text : {"Two", "Three", "Four"}) {
    const Chat before = at.session.conversation.chat;
    Chat question = before;
    question.messages.pop_back();
    history = render(at.session.voice.form, at.tokenizer, question).history();
    at.hear(text);
    // All up to the answer before is remembered; that answer is read again, without its think
    // block; the message is new.
    Chat now = at.session.conversation.chat;
    now.messages.pop_back();
    const Prompt prompt = render(at.session.voice.form, at.tokenizer, now);
    CHECK(at.session.last.known == history);
    CHECK(at.session.last.prompt == static_cast<int>(prompt.ids.size()));
    CHECK(at.session.last.again == prompt.turns[prompt.turns.size() - 2] - history);
    CHECK(at.session.last.why.find("the answer before now stands without its think block") == 0);
    CHECK(at.session.conversation.sequence.snapshots.size() == 1);  // of however many turns
  }
}

TEST_CASE("conversation: going on from the state without reading again is noticed") {
  // The planted bug: what was written is kept as it is, think block and all.
  Fixture right, wrong;
  right.hear("Hello");
  wrong.hear("Hello");
  right.hear("And now?");
  Conversation& conversation = wrong.session.conversation;
  conversation.chat.messages.push_back({Role::user, "And now?"});
  const Prompt prompt = render(wrong.session.voice.form, wrong.tokenizer, conversation.chat);
  const int seen = prompt.turns[prompt.turns.size() - 2];
  read(wrong.model, ops(), conversation.sequence, std::span(prompt.ids).subspan(seen));
  CHECK(bit_difference("logits", right.next_logits(), wrong.next_logits()) != "");
}

TEST_CASE("conversation: saved, loaded by another process and continued, it has the same bits") {
  const TempDir folder;
  const std::string file = folder.path() + "/chat.json";
  Fixture at;
  at.session.options.sampling.top_k = 50;
  at.session.options.sampling.top_p = 0.9;
  at.session.options.sampling.seed = (1ull << 63) + 5;
  at.hear("Hello");
  at.hear("A second <|im_end|> question 🙂");
  CHECK(run_command(at.session, "/save " + file) == "saved to " + file);

  Fixture other;
  CHECK(run_command(other.session, "/load " + file) == "4 messages");
  CHECK(other.session.options.sampling.top_p == 0.9);
  CHECK(other.session.options.sampling.seed == (1ull << 63) + 5);
  CHECK(other.hear("And a third?") == at.hear("And a third?"));
  CHECK(other.session.conversation.sequence.ids == at.session.conversation.sequence.ids);
  check_same_bits("after the third answer", other.next_logits(), at.next_logits());
  CHECK(state_difference(other.session.conversation.sequence.state,
                         at.session.conversation.sequence.state) == "");
}

TEST_CASE("conversation: an attention-only model reads nothing again") {
  Fixture at;
  at.model = load_model("checkpoints/llama");
  at.model.config.eos_token_id = {1};
  at.session.voice.form = {ChatForm::chatml, "Be brief.", false};
  at.session.conversation = empty_conversation(at.model.config);
  at.hear("Hello");
  const int held = at.session.conversation.sequence.state.position;
  at.hear("More");
  // Either its text is the same tokens again, or it parts within the answer.
  CHECK(at.session.last.known > 0);
  if (at.session.last.why.empty()) CHECK(at.session.last.known == held);
}

TEST_CASE("conversation: results of tools go on from the state, and thoughts are kept till then") {
  Fixture at;
  auto& chat = at.session.conversation.chat;
  chat.messages = {{Role::user, "Weather?"}};
  answer(at.session.voice, at.session.conversation, at.session.options);
  const int first = at.session.conversation.sequence.snapshots.at(0).position;
  chat.messages.back() = {Role::assistant, "I look.", "Hm.", {{"f"}}};
  chat.messages.push_back({Role::tool, "rain"});
  answer(at.session.voice, at.session.conversation, at.session.options);
  CHECK(at.session.conversation.sequence.snapshots.size() == 2);
  chat.messages.push_back({Role::user, "And tomorrow?"});
  const AnswerStats stats = answer(at.session.voice, at.session.conversation, at.session.options);
  CHECK(stats.known == first);  // thoughts since the last question are gone
  CHECK(stats.again > 0);
  CHECK(stats.why.find("earlier messages now stand in other words") == 0);
}

TEST_CASE("conversation: a begun answer is continued, with one header") {
  Fixture at;
  auto& chat = at.session.conversation.chat;
  chat.messages = {{Role::user, "Count."}, {Role::assistant, " One, "}};
  const Prompt prompt = render(at.session.voice.form, at.tokenizer, chat);
  CHECK(prompt.turns.size() == 2);
  CHECK(prompt.begun.content == "One,");
  answer(at.session.voice, at.session.conversation, at.session.options);
  CHECK(chat.messages.size() == 2);
  CHECK(chat.messages.back().content.starts_with("One,"));
  CHECK(chat.messages.back().content.size() > 4);
}

TEST_CASE("conversation: a full context ends the answer, and /reset makes room") {
  Fixture at;
  at.model.config.max_position_embeddings = 40;
  at.session.options.max_tokens = 500;
  at.model.config.eos_token_id = {};
  CHECK(say(at.session, "Hi").find("the context of 40 tokens is full; /reset") !=
        std::string::npos);
  CHECK(at.session.conversation.sequence.state.position <= 40);
  CHECK(at.session.last.prompt + at.session.last.written == 40);
  const std::size_t count = at.session.conversation.chat.messages.size();
  check_throws_with([&] { at.hear("More"); }, "the model's context is 40");
  CHECK(at.session.conversation.chat.messages.size() == count);
  run_command(at.session, "/reset");
  CHECK(at.session.conversation.chat.messages.empty());
  at.hear("Hi");
  CHECK(at.session.last.written > 0);
}

TEST_CASE("conversation: an answer can be stopped, before its first token and after") {
  Fixture at;
  at.model.config.eos_token_id = {};
  int tokens = 0;
  CHECK(say(at.session, "Hello", {}, [&] { return ++tokens > 3; }) == "stopped");
  CHECK(at.session.conversation.chat.messages.size() == 2);
  CHECK(at.session.last.written == 3);
  CHECK(say(at.session, "Hello", {}, [] { return true; }) == "stopped");
  CHECK(at.session.conversation.chat.messages.size() == 2);  // as if it had not been said
  CHECK(at.session.last.written == 0);
  Fixture anew;
  anew.model.config.eos_token_id = {};
  anew.session.conversation.chat = at.session.conversation.chat;
  CHECK(at.hear("Go on") == anew.hear("Go on"));
}

TEST_CASE(
    "conversation: what was read until it was stopped is counted, and taken back without fuss") {
  Fixture at;
  at.model.config.max_position_embeddings = 4096;
  const std::string before = at.hear("Hello");
  const int history = at.session.conversation.sequence.snapshots.back().position;
  int asked = 0;
  say(at.session, std::string(2000, 'x'), {}, [&] { return ++asked == 3; });
  const AnswerStats& last = at.session.last;
  CHECK(last.known == history);
  CHECK(last.read == 2 * kReadAtOnce);
  CHECK(last.positions == history + 2 * kReadAtOnce);
  CHECK(last.prompt > last.known + last.read);
  CHECK(last.read_seconds > 0);
  const std::string stats = run_command(at.session, "/stats");
  CHECK(stats.find(" remembered, 1024 read until that was stopped\n") != std::string::npos);
  CHECK(stats.find("inf") == std::string::npos);
  // The next message stands where the other would have stood.
  at.hear("Go on");
  CHECK(last.why.find("a message was taken back (parted at ") == 0);
  CHECK(last.again > 0);
  CHECK(last.read == last.prompt - last.known);
}

TEST_CASE("conversation: after /load, what is read again is what had been said") {
  const TempDir folder;
  const std::string file = folder.path() + "/chat.json";
  Fixture first, second;
  first.hear("Hello");
  run_command(first.session, "/save " + file);
  CHECK(run_command(second.session, "/load " + file) == "2 messages");
  second.hear("And now?");
  Chat chat = second.session.conversation.chat;
  chat.messages.pop_back();
  const Prompt prompt = render(second.session.voice.form, second.tokenizer, chat);
  CHECK(second.session.last.known == 0);
  CHECK(second.session.last.again == prompt.turns[prompt.turns.size() - 2]);
  CHECK(second.session.last.why == "the conversation was loaded");
  second.hear("And then?");
  CHECK(second.session.last.why.find("now stands without its think block") != std::string::npos);
}

TEST_CASE("conversation: an exact repetition ends the answer") {
  Fixture at;
  at.model.config.eos_token_id = {};
  at.session.options.sampling = {};
  at.session.options.sampling.presence_penalty = -100;  // what was said is said again
  at.session.options.max_tokens = 400;
  at.session.options.loop_tokens = 30;
  const std::string remark = say(at.session, "Hello");
  CHECK(remark.find("came again and again") != std::string::npos);
  CHECK(at.session.last.written < 400);
  at.session.options.loop_tokens = 0;
  CHECK(say(at.session, "Hello").find("stopped after 400 tokens") == 0);
}

TEST_CASE("loop stop: four times, and long enough, and exactly the same") {
  const auto stops_at = [](const std::vector<int>& period, int most, int change_at = -1) {
    LoopWatch watch(most);
    for (int n = 0; n < 3000; ++n) {
      const int id = n == change_at ? -1 : period[n % period.size()];
      if (watch.add(id) > 0) return n + 1;
    }
    return 0;
  };
  CHECK(stops_at({5}, 64) == 65);  // one token and 64 that equal the one before
  CHECK(stops_at({1, 2, 3}, 64) == 67);
  std::vector<int> paragraph(100);
  for (int n = 0; n < 100; ++n) paragraph[n] = n;
  CHECK(stops_at(paragraph, 64) == 400);  // four times
  CHECK(stops_at(paragraph, 64, 350) == 751);
  std::vector<int> page(257);
  for (int n = 0; n < 257; ++n) page[n] = n;
  CHECK(stops_at(page, 64) == 0);  // longer than what is looked for
  CHECK(stops_at({1, 2, 3}, 64, 60) == 128);
}

TEST_CASE("answer reader: thought, content and calls, each stripped, none shown too early") {
  const Tokenizer tokenizer = with_markers();
  Prompt prompt;
  prompt.thinking = true;
  const std::string text =
      "\n  A thought. \n</think>\n\n The answer  is 🙂.\n\n<tool_call>\n<function=get>\n"
      "<parameter=town>\nKom\n</parameter>\n<parameter=n>\n1\n2\n</parameter>\n</function>\n"
      "</tool_call>\n";
  const Heard heard = hear_ids(tokenizer, prompt, encode(tokenizer, text));
  CHECK(heard.thought == "A thought.");
  CHECK(heard.content == "The answer  is 🙂.");
  CHECK(heard.call.starts_with("<tool_call>\n<function=get>"));
  CHECK(heard.message.reasoning == "A thought.");
  CHECK(heard.message.content == "The answer  is 🙂.");
  REQUIRE(heard.message.tool_calls.size() == 1);
  CHECK(heard.message.tool_calls[0].name == "get");
  CHECK(heard.message.tool_calls[0].arguments.dump() == R"({"town":"Kom","n":"1\n2"})");
  // Written down again, it is the same text.
  Chat chat{{{Role::user, "a"}, heard.message, {Role::tool, "b"}}, {}, std::nullopt};
  CHECK(render({ChatForm::qwen3_5, "", true}, tokenizer, chat)
            .text.find("<think>\nA thought.\n</think>\n\nThe answer  is "
                       "🙂.\n\n<tool_call>\n<function=get>\n"
                       "<parameter=town>\nKom\n</parameter>\n<parameter=n>\n1\n2\n</parameter>\n</"
                       "function>\n"
                       "</tool_call><|im_end|>") != std::string::npos);
}

TEST_CASE("answer reader: markers that are only text are text") {
  const Tokenizer tokenizer = with_markers();
  const std::string text = "a</think>b<tool_call>c<|im_end|>";
  const Heard heard = hear_ids(tokenizer, {}, text_ids(tokenizer, text));
  CHECK(heard.content == text);
  CHECK(heard.message.content == text);
  CHECK(heard.message.reasoning == "");  // set: the template must not look for a thought in it
  Chat chat{{{Role::user, "a"}, heard.message, {Role::user, "b"}}, {}, std::nullopt};
  const Prompt prompt = render({ChatForm::qwen3_5, "", false}, tokenizer, chat);
  CHECK(prompt.text.find("assistant\n" + text + "<|im_end|>\n") != std::string::npos);
}

TEST_CASE("answer reader: a call that is none is part of the content") {
  const Tokenizer tokenizer = with_markers();
  for (const char* call : {"<tool_call>\nget()\n</tool_call>", "<tool_call>\n<function=get>\nx"}) {
    const Heard heard = hear_ids(tokenizer, {}, encode(tokenizer, call));
    CHECK(heard.message.tool_calls.empty());
    CHECK(heard.message.content.starts_with("<tool_call>\n"));
  }
  for (const char* text : {"", "<function=f", "<function=f>\n", "<function=f>\n<parameter=x>\n1",
                           "<function=f>\n</function>\nmore", "f</function>"}) {
    CHECK_FALSE(parse_call(text));
  }
  CHECK(parse_call("\n<function=f>\n</function>\n")->arguments.empty());
}

TEST_CASE("answer reader: a limit inside an emoji leaves valid UTF-8") {
  const Tokenizer tokenizer = load_tokenizer("checkpoints/tiny");
  const std::vector<int> ids = text_ids(tokenizer, "a 👩‍👩‍👧 b");
  REQUIRE(ids.size() > 12);  // byte by byte
  for (std::size_t n = 0; n <= ids.size(); ++n) {
    const Heard heard = hear_ids(tokenizer, {}, {ids.begin(), ids.begin() + n});
    const std::string whole = decode(tokenizer, std::span(ids).first(n));
    CHECK(heard.content == heard.message.content);
    CHECK(heard.content == (whole == "a " || whole == "a 👩‍👩‍👧 "
                                ? whole.substr(0, whole.size() - 1)
                                : whole));
  }
}

TEST_CASE("end tokens: the config's, the tokenizer's, and those that end a turn") {
  const Tokenizer tokenizer = load_tokenizer("checkpoints/tiny");
  Config config;
  config.eos_token_id = {17, 0};
  CHECK(end_tokens(config, tokenizer) == std::vector<int>{0, 1, 17});
}

TEST_CASE("session: commands, and what they say to what they cannot do") {
  Fixture at;
  const auto refused = [&](const char* line, const char* part) {
    check_throws_with([&] { run_command(at.session, line); }, part);
  };
  for (const char* line : {"/x", "/SAVE a", "/save a/b", "/help\tme"}) CHECK(is_command(line));
  for (const char* line :
       {"x /", "/", "/ x", "//x", "/etc/hosts is missing", "/2 is a half", "/é", "/help?"}) {
    CHECK_FALSE(is_command(line));
  }
  CHECK(run_command(at.session, "/help").find("/load FILE") != std::string::npos);
  CHECK(run_command(at.session, "/stats") == "nothing has been answered yet");
  CHECK(run_command(at.session, "/think") == "the model thinks before it answers");
  CHECK(at.session.conversation.chat.enable_thinking == true);
  CHECK(run_command(at.session, "/think") == "the model answers at once");
  at.session.voice.form.form = ChatForm::chatml;
  refused("/think", "knows no thinking");
  refused("/nothing", "there is no command \"/nothing\"; /help lists them");
  refused("/SAVE chat.json", "there is no command \"/SAVE\"; /help lists them");
  refused("/save", "/save needs the name of a file");
  refused("/reset now", "/reset takes nothing after it, found \"now\"");
  refused("/load nowhere.json", "nowhere.json");
  refused("/save nowhere/chat.json", "cannot write nowhere/chat.json");

  at.session.conversation.chat.messages = {{Role::system, "s"}, {Role::user, "u"}};
  run_command(at.session, "/reset");
  REQUIRE(at.session.conversation.chat.messages.size() == 1);
  CHECK(at.session.conversation.chat.messages[0].content == "s");
  at.hear("Hello");
  const std::string stats = run_command(at.session, "/stats");
  CHECK(stats.find("0 of them remembered") != std::string::npos);
  CHECK(stats.find("read again: nothing") != std::string::npos);
  CHECK(stats.find("of 512; memory:") != std::string::npos);
}

TEST_CASE("session: a file that cannot be loaded changes nothing") {
  const TempDir folder;
  Fixture at;
  at.hear("Hello");
  const auto refused = [&](const std::string& text, const char* part) {
    const std::string file = folder.write("chat.json", text);
    check_throws_with([&] { run_command(at.session, "/load " + file); }, part);
    CHECK(at.session.conversation.chat.messages.size() == 2);
    CHECK(at.session.options.sampling.temperature == 1);
  };
  refused("{", "not valid JSON");
  refused(R"({"messages": [], "sampling": {"temperature": -1}})", "sampling: ");
  refused(R"({"messages": [], "sampling": {"seed": -1}})", "seed is -1");
  refused(R"({"messages": [], "sampling": {"top_k": 1.5}})", "top_k is 1.5");
  refused(R"({"messages": [], "sampling": 3})", "expected a JSON object");
}

TEST_CASE("hub cache: the smallest Qwen3.5 that can be opened; what cannot is said") {
  const TempDir cache;
  const auto snapshot = [&](const std::string& name, const std::string& revision,
                            const std::string& model) {
    const auto folder =
        fs::path(cache.path()) / ("hub/models--Qwen--" + name) / "snapshots" / revision;
    fs::create_directories(folder);
    const fs::path from = fs::absolute("checkpoints/" + model);
    for (const auto& file : fs::directory_iterator(from)) {
      fs::create_symlink(file.path(), folder / file.path().filename());
    }
    if (!fs::exists(folder / "tokenizer.json")) std::ofstream(folder / "tokenizer.json") << "{}";
    return folder.string();
  };
  const auto found = [] { return search_hub_cache().model; };
  setenv("HF_HOME", cache.path().c_str(), 1);
  unsetenv("HF_HUB_CACHE");
  CHECK(found() == std::nullopt);
  snapshot("Qwen3-0.6B", "a", "tiny");
  snapshot("Qwen3.5-0.8B-Base", "a", "tiny");
  snapshot("Qwen3.5-35B-A3B", "a", "tiny");
  fs::create_directories(cache.path() + "/hub/models--Qwen--Qwen3.5-99999999999B");
  CHECK(found() == std::nullopt);
  CHECK(search_hub_cache().remarks.empty());
  // Downloads that ended halfway: a shard that is not there yet, or whose link leads nowhere.
  const std::string part = snapshot("Qwen3.5-0.8B", "a", "sharded");
  const std::string shard = part + "/model-00002-of-00003.safetensors";
  REQUIRE(fs::remove(shard));
  for (const bool has_link : {false, true}) {
    if (has_link) fs::create_symlink("../../blobs/none", shard);
    const HubCache incomplete = search_hub_cache();
    CHECK(incomplete.model == std::nullopt);
    REQUIRE(incomplete.remarks.size() == 1);
    CHECK(incomplete.remarks[0] ==
          "passed over in the hub's cache: cannot read " + shard + ": No such file or directory");
  }
  const std::string large = snapshot("Qwen3.5-4B", "b", "tiny");
  CHECK(found() == large);
  const std::string small = snapshot("Qwen3.5-2B", "c", "sharded");
  CHECK(found() == small);
  setenv("HF_HUB_CACHE", (cache.path() + "/hub").c_str(), 1);
  setenv("HF_HOME", "nowhere", 1);
  CHECK(found() == small);
  unsetenv("HF_HUB_CACHE");
  CHECK(found() == std::nullopt);
}
