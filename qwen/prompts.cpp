#include "qwen/prompts.h"

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>
#include <utility>

namespace qwen {
namespace {

constexpr std::array kFields = {"prompt",
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

void take(const JsonObject& object, const char* key, double& value) {
  if (object.has(key)) value = object.number(key);
}

template <class Integer>
void take_count(const JsonObject& object, const char* key, Integer& value) {
  constexpr std::int64_t highest =
      std::min<std::uint64_t>(std::numeric_limits<Integer>::max(), INT64_MAX);
  if (object.has(key)) value = static_cast<Integer>(object.integer(key, 0, highest));
}

void take_sampling(const JsonObject& object, Sampling& sampling) {
  take(object, "temperature", sampling.temperature);
  take_count(object, "top_k", sampling.top_k);
  take(object, "top_p", sampling.top_p);
  take(object, "min_p", sampling.min_p);
  take(object, "repetition_penalty", sampling.repetition_penalty);
  take(object, "presence_penalty", sampling.presence_penalty);
  take(object, "frequency_penalty", sampling.frequency_penalty);
  take_count(object, "seed", sampling.seed);
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

std::vector<int> prompt_ids(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int> ids = encode(tokenizer, text);
  if (tokenizer.bos >= 0) ids.insert(ids.begin(), tokenizer.bos);
  return ids;
}

// Fills in what the line says.
void parse(std::string_view line, const Tokenizer& tokenizer, PromptLine& prompt) {
  const Json json = parse_json(line, prompt.source);
  const JsonObject object(json, prompt.source);
  if (object.has("id")) prompt.id = json["id"];
  refuse_unknown_fields(object);
  prompt.request.prompt = prompt_ids(tokenizer, object.string("prompt"));
  take_sampling(object, prompt.request.sampling);
  take_count(object, "max_new", prompt.request.max_tokens);
  prompt.stop = texts(object, "stop");
  if (!prompt.stop.empty()) prompt.request.on_token = stop_at(tokenizer, prompt.stop);
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

// {"line": 3, "id": …}, to which the rest is added.
OrderedJson answer_to(const PromptLine& prompt) {
  OrderedJson json;
  json["line"] = prompt.line;
  if (!prompt.id.is_null()) json["id"] = prompt.id;
  return json;
}

std::string error_line(const PromptLine& prompt) {
  OrderedJson json = answer_to(prompt);
  json["error"] = prompt.error;
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string answer_line(const Tokenizer& tokenizer, const PromptLine& prompt,
                        const Answer& answer) {
  OrderedJson json = answer_to(prompt);
  json["text"] = answer_text(tokenizer, answer, prompt.stop);
  json["tokens"] = answer.ids.size();
  json["ended"] = ending_name(answer.ending);
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace

std::vector<PromptLine> read_prompts(std::string_view text, const std::string& source,
                                     const Tokenizer& tokenizer, const Request& defaults) {
  std::vector<PromptLine> prompts;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    PromptLine prompt;
    prompt.line = number;
    prompt.source = source + ":" + std::to_string(number);
    prompt.request = defaults;
    try {
      parse(line, tokenizer, prompt);
    } catch (const std::runtime_error& error) {
      prompt.error = error.what();
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

OnToken stop_at(const Tokenizer& tokenizer, const std::vector<std::string>& stop) {
  return [&tokenizer, stop, stream = continued_stream(), text = std::string()](int id) mutable {
    text += decode_next(tokenizer, stream, id);
    return find_stop(text, stop) == std::string::npos;
  };
}

std::string answer_text(const Tokenizer& tokenizer, const Answer& answer,
                        const std::vector<std::string>& stop) {
  TextStream stream = continued_stream();
  std::string text;
  for (const int id : answer.ids) text += decode_next(tokenizer, stream, id);
  text += finish(stream);
  return text.substr(0, find_stop(text, stop));
}

const char* ending_name(Ending ending) {
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

void answer_prompts(const Model& model, const Ops& ops, const Tokenizer& tokenizer,
                    std::vector<PromptLine> prompts, const BatchLimits& limits,
                    const OnAnswer& on_answer, const OnStep& on_step) {
  check_limits(limits);
  Scheduler scheduler{limits, {}, {}};
  std::vector<std::string> answers(prompts.size());  // those that have not been handed on
  std::size_t next = 0;
  const auto answer = [&](std::size_t i, std::string json) {
    answers[i] = std::move(json);
    for (; next < answers.size() && !answers[next].empty(); ++next) {
      on_answer(prompts[next], std::exchange(answers[next], ""));
    }
  };

  for (std::size_t i = 0; i < prompts.size(); ++i) {
    PromptLine& prompt = prompts[i];
    try {
      if (prompt.error.empty()) {
        submit(model.config, scheduler, static_cast<int>(i), std::move(prompt.request));
      }
    } catch (const std::invalid_argument& error) {
      prompt.error = prompt.source + ": " + error.what();
    }
    if (!prompt.error.empty()) answer(i, error_line(prompt));
  }
  while (busy(scheduler) && on_step(scheduler)) {
    for (const Running& done : step(model, ops, scheduler)) {
      answer(done.number, answer_line(tokenizer, prompts[done.number], done.answer));
    }
  }
}

}  // namespace qwen
