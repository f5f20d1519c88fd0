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

// Goes back to where the prompt and the sequence part, and writes down what that costs.
void reuse(const Voice& voice, Conversation& conversation, const Prompt& prompt,
           AnswerStats& stats) {
  Sequence& sequence = conversation.sequence;
  const int held = static_cast<int>(sequence.ids.size());
  const auto [here, there] =
      std::mismatch(sequence.ids.begin(), sequence.ids.end(), prompt.ids.begin(), prompt.ids.end());
  const int parting = static_cast<int>(here - sequence.ids.begin());
  stats.known = reuse_prefix(sequence, prompt.ids);
  if (stats.known == held) return;

  const std::size_t before = conversation.turns;
  const int new_from = before < prompt.turns.size() ? prompt.turns[before] : prompt.history();
  stats.again = std::max(0, new_from - stats.known);
  const bool in_answer =
      before > 0 && before <= prompt.turns.size() && parting >= prompt.turns[before - 1];
  stats.why = !in_answer ? "earlier messages now stand in other words"
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
  return {{}, empty_sequence(config), 0};
}

AnswerStats answer(const Voice& voice, Conversation& conversation, const AnswerOptions& options,
                   const OnText& on_text, const WantsToStop& wants_to_stop) {
  const Prompt prompt = render(voice.form, voice.tokenizer, conversation.chat);
  check_room(voice.model.config, prompt);
  AnswerStats stats;
  stats.prompt = static_cast<int>(prompt.ids.size());
  auto start = Clock::now();
  reuse(voice, conversation, prompt, stats);
  conversation.turns = static_cast<int>(prompt.turns.size());
  if (!read_history(voice, conversation, prompt, wants_to_stop)) return stats;

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
