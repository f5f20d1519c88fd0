#include "qwen/conversation.h"

#include <algorithm>
#include <stdexcept>

#include "qwen/loop_stop.h"
#include "qwen/stopwatch.h"

namespace qwen {
namespace {

void check_room(const Config& config, const Prompt& prompt) {
  const int needed = static_cast<int>(prompt.ids.size()) + 1;
  if (needed <= config.max_position_embeddings) return;
  throw std::invalid_argument("the conversation and a first token of an answer are " +
                              std::to_string(needed) + " tokens, the model's context is " +
                              std::to_string(config.max_position_embeddings) +
                              ": say less, or /reset");
}

// Goes back to where the prompt and the sequence part, and writes down what that costs. The last
// message is new; what is read and comes before it has been read before.
void reuse(const Voice& voice, Conversation& conversation, const Prompt& prompt,
           AnswerStats& stats) {
  Sequence& sequence = conversation.sequence;
  const int held = static_cast<int>(sequence.ids.size());
  const auto [here, there] =
      std::mismatch(sequence.ids.begin(), sequence.ids.end(), prompt.ids.begin(), prompt.ids.end());
  const int parting = static_cast<int>(here - sequence.ids.begin());
  stats.known = reuse_prefix(sequence, prompt.ids);
  if (stats.known == held && !conversation.is_loaded) return;

  const auto turn = [&](std::size_t from_end) {
    return from_end <= prompt.turns.size() ? prompt.turns[prompt.turns.size() - from_end] : 0;
  };
  const int answer_before = turn(3), last_message = turn(2);
  stats.again = std::max(0, last_message - stats.known);
  if (stats.again == 0) return;
  stats.why = conversation.is_loaded    ? "the conversation was loaded"
              : parting < answer_before ? "earlier messages now stand in other words"
              : parting >= last_message ? "a message was taken back"
              : voice.form.form == ChatForm::qwen3_5
                  ? "the answer before now stands without its think block"
                  : "the answer before is now cut into other tokens";
  if (stats.known < parting) {
    stats.why +=
        " (parted at " + std::to_string(parting) + ", back to " + std::to_string(stats.known) + ")";
  }
}

// Reads up to the answer's turn, and keeps the place. False where it was given up.
bool read_history(const Voice& voice, Conversation& conversation, const Prompt& prompt,
                  const WantsToStop& wants_to_stop) {
  Sequence& sequence = conversation.sequence;
  while (sequence.state.position < prompt.history()) {
    if (wants_to_stop && wants_to_stop()) return false;
    const int position = sequence.state.position;
    const int count = std::min(kReadAtOnce, prompt.history() - position);
    read(voice.model, voice.ops, sequence, std::span(prompt.ids).subspan(position, count));
  }
  if (sequence.state.position > prompt.history()) return true;
  // The next question will change what comes after this one, and nothing before: no other place
  // will be gone back to, unless what is answered is not a question but the result of a tool.
  const bool is_question = conversation.chat.messages.back().role == Role::user;
  auto& snapshots = sequence.snapshots;
  snapshots.resize(std::min<std::size_t>(snapshots.size(), is_question ? 0 : 1));
  snapshot(sequence);
  return true;
}

Sampling for_this_answer(const Conversation& conversation, Sampling sampling) {
  const auto& messages = conversation.chat.messages;
  const auto is_assistant = [](const Message& m) { return m.role == Role::assistant; };
  sampling.seed += std::count_if(messages.begin(), messages.end(), is_assistant);
  return sampling;
}

void add_answer(Chat& chat, Message message) {
  if (chat.messages.back().role == Role::assistant) chat.messages.pop_back();  // it was continued
  chat.messages.push_back(std::move(message));
}

}  // namespace

Conversation empty_conversation(const Config& config) {
  return {{}, empty_sequence(config)};
}

AnswerStats answer(const Voice& voice, Conversation& conversation, const AnswerOptions& options,
                   const OnText& on_text, const WantsToStop& wants_to_stop) {
  const Config& config = voice.model.config;
  const Prompt prompt =
      render(voice.form, voice.tokenizer, conversation.chat, config.max_position_embeddings);
  check_room(config, prompt);
  AnswerStats stats;
  stats.prompt = static_cast<int>(prompt.ids.size());
  auto start = Clock::now();
  reuse(voice, conversation, prompt, stats);
  if (!read_history(voice, conversation, prompt, wants_to_stop)) {
    stats.positions = conversation.sequence.state.position;
    stats.read = stats.positions - stats.known;
    stats.read_seconds = seconds_since(start);
    return stats;
  }
  conversation.is_loaded = false;

  AnswerReader reader(voice.tokenizer, prompt, on_text);
  LoopWatch loops(options.loop_tokens);
  const auto on_token = [&](int id) {
    if (stats.written++ == 0) {
      stats.read_seconds = seconds_since(start);
      start = Clock::now();
    }
    reader.read(id);
    if (options.loop_tokens > 0) stats.loop_period = loops.add(id);
    return stats.loop_period == 0 && !(wants_to_stop && wants_to_stop());
  };
  const int position = conversation.sequence.state.position;
  const Answer written = generate(
      voice.model, voice.ops, conversation.sequence, std::span(prompt.ids).subspan(position),
      for_this_answer(conversation, options.sampling), options.max_tokens, on_token);
  (stats.written == 0 ? stats.read_seconds : stats.write_seconds) = seconds_since(start);
  stats.positions = conversation.sequence.state.position;
  stats.read = stats.prompt - stats.known;
  stats.ending = written.ending;
  add_answer(conversation.chat, reader.finish());
  return stats;
}

std::vector<int> end_tokens(const Config& config, const Tokenizer& tokenizer) {
  std::vector<int> ends = config.eos_token_id;
  ends.insert(ends.end(), tokenizer.eos.begin(), tokenizer.eos.end());
  for (const char* marker : {"<|im_end|>", "<|endoftext|>"}) {
    if (const auto id = token_id(tokenizer, marker)) ends.push_back(*id);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

}  // namespace qwen
