#include "qwen/prompts.h"

#include <algorithm>
#include <array>
#include <climits>
#include <stdexcept>
#include <utility>

#include "qwen/json.h"
#include "qwen/messages_json.h"
#include "qwen/sampling_json.h"

namespace qwen {
namespace {

constexpr std::array kFields = {"prompt",
                                "messages",
                                "tools",
                                "enable_thinking",
                                "id",
                                "stop",
                                "max_new",
                                "seed",
                                "temperature",
                                "top_k",
                                "top_p",
                                "min_p",
                                "repetition_penalty",
                                "presence_penalty",
                                "frequency_penalty"};

// A misspelt field would be a wish that nobody hears.
void refuse_unknown_fields(const JsonObject& object) {
  for (const auto& [key, value] : object.value().items()) {
    if (std::find(kFields.begin(), kFields.end(), key) != kFields.end()) continue;
    std::string known;
    for (const char* field : kFields) known += (known.empty() ? "" : ", ") + std::string(field);
    throw std::runtime_error(object.source() + ": unknown field " + shown(key) + ", expected " +
                             known);
  }
}

std::vector<std::string> texts(const JsonObject& object, const std::string& key) {
  if (!object.has(key)) return {};
  const Json& value = *object.value().find(key);
  std::vector<std::string> all;
  for (const Json& one : value.is_array() ? value : Json::array({value})) {
    if (!one.is_string() || one.get_ref<const std::string&>().empty()) {
      object.fail(key, "a text or a list of texts, none of them empty");
    }
    all.push_back(one.get<std::string>());
  }
  return all;
}

std::vector<int> prompt_ids(const Tokenizer& tokenizer, const ChatTemplate& form, int context,
                            std::string_view text, const JsonObject& object) {
  if (!object.has("messages")) {
    const std::string prompt = object.string("prompt");
    for (const char* key : {"tools", "enable_thinking"}) {
      if (object.has(key)) object.fail(key, "it beside messages, not beside a prompt");
    }
    expect_room(tokenizer, prompt, context);
    return encode_prompt(tokenizer, prompt);
  }
  if (object.has("prompt")) object.fail("prompt", "nothing beside messages");
  // Once more, as written: a template shows the fields of tools in their order.
  const OrderedJson ordered = parse_ordered_json(text, object.source());
  return render(form, tokenizer, chat_from_json(ordered, object.source()), context).ids;
}

// Fills in what the line says.
void parse(std::string_view text, const Tokenizer& tokenizer, const ChatTemplate& form, int context,
           PromptLine& line) {
  const Json json = parse_json(text, line.source);
  const JsonObject object(json, line.source);
  if (object.has("id")) line.id = parse_ordered_json(text, line.source)["id"];
  refuse_unknown_fields(object);
  line.request.prompt = prompt_ids(tokenizer, form, context, text, object);
  take_sampling(object, line.request.sampling);
  if (object.has("max_new")) {
    line.request.max_tokens = static_cast<int>(object.integer("max_new", 0, INT_MAX));
  }
  line.stop = texts(object, "stop");
  if (!line.stop.empty()) line.request.on_token = stop_at(tokenizer, line.stop);
}

// An answer goes on from its prompt: a space in front of its first word is part of the text.
TextStream continued_stream() {
  return {.held = "", .started = true};
}

// Where the first of the stop texts begins; npos if none is there.
std::size_t find_stop(const std::string& text, const std::vector<std::string>& stop) {
  std::size_t first = std::string::npos;
  for (const std::string& one : stop) first = std::min(first, text.find(one));
  return first;
}

const char* name_of(Ending ending) {
  switch (ending) {
    case Ending::end_token:
      return "end_token";
    case Ending::max_tokens:
      return "max_tokens";
    case Ending::context:
      return "context";
    case Ending::stopped:
      return "stop";
  }
  return "";
}

}  // namespace

std::vector<PromptLine> read_prompts(std::string_view text, const std::string& source,
                                     const Tokenizer& tokenizer, const ChatTemplate& form,
                                     int context, const Request& defaults) {
  std::vector<PromptLine> lines;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view one = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(one.size() + 1, text.size()));
    if (one.find_first_not_of(" \t\r") == one.npos) continue;
    PromptLine line;
    line.number = number;
    line.source = source + ":" + std::to_string(number);
    line.request = defaults;
    try {
      parse(one, tokenizer, form, context, line);
    } catch (const std::invalid_argument& error) {  // of those who know of no line
      line.error = line.source + ": " + error.what();
    } catch (const std::runtime_error& error) {
      line.error = error.what();
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

OnToken stop_at(const Tokenizer& tokenizer, const std::vector<std::string>& stop) {
  return [&tokenizer, stop, stream = continued_stream(), text = std::string()](int id) mutable {
    text += decode_next(tokenizer, stream, id);
    return find_stop(text, stop) == std::string::npos;
  };
}

std::string answer_text(const Tokenizer& tokenizer, const PromptLine& line) {
  TextStream stream = continued_stream();
  std::string text;
  for (const int id : line.answer.ids) text += decode_next(tokenizer, stream, id);
  text += finish(stream);
  return text.substr(0, find_stop(text, line.stop));
}

std::string answer_json(const Tokenizer& tokenizer, const PromptLine& line) {
  OrderedJson json;
  json["line"] = line.number;
  if (!line.id.is_null()) json["id"] = line.id;
  if (line.error.empty()) {
    json["text"] = answer_text(tokenizer, line);
    json["tokens"] = line.answer.ids.size();
    json["ended"] = name_of(line.answer.ending);
  } else {
    json["error"] = line.error;
  }
  return json_text(json);
}

void answer_prompts(const Model& model, const Ops& ops, std::vector<PromptLine> lines,
                    const BatchLimits& limits, const OnAnswer& on_answer, const OnStep& on_step) {
  check_limits(limits);
  Scheduler scheduler{limits, {}, {}};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    PromptLine& line = lines[i];
    try {
      if (line.error.empty()) {
        submit(model.config, scheduler, static_cast<int>(i), std::move(line.request));
      }
    } catch (const std::invalid_argument& error) {
      line.error = line.source + ": " + error.what();
    }
    line.answered = !line.error.empty();
  }

  std::size_t next = 0;
  const auto hand_on = [&] {
    for (; next < lines.size() && lines[next].answered; ++next) on_answer(lines[next]);
  };
  hand_on();
  while (busy(scheduler) && on_step(scheduler)) {
    for (Running& done : step(model, ops, scheduler)) {
      PromptLine& line = lines[done.number];
      line.answer = std::move(done.answer);
      if (!done.error.empty()) line.error = line.source + ": " + done.error;
      line.answered = true;
    }
    hand_on();
  }
}

}  // namespace qwen
