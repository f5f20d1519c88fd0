// Chapter 12. How does a model that continues texts hold a conversation?
//
// New: chat_template, which writes a conversation down as the model has learned to read it;
// answer_reader, which takes the answer apart while it comes; conversation, which goes on from what
// the model remembers of what was said; chat_session, the commands around it.
//
//   ch12_chat                             talks with you; /help lists what else it can do
//   ch12_chat --prompt TEXT --greedy      prints an answer, and nothing else on stdout
//   ch12_chat --messages FILE.json        answers a conversation
//   ch12_chat --prompt TEXT --print-prompt   shows what the model is given to read
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "qwen/chat_session.h"
#include "qwen/counted.h"
#include "qwen/find_template.h"
#include "qwen/hub_cache.h"
#include "qwen/input.h"
#include "qwen/interrupt.h"
#include "qwen/line_input.h"
#include "qwen/messages_json.h"
#include "qwen/options.h"
#include "qwen/printable.h"
#include "qwen/python_text.h"
#include "qwen/sampling_config.h"
#include "qwen/sampling_options.h"
#include "qwen/tables.h"
#include "qwen/utf8.h"

using namespace qwen;

namespace {

struct Options {
  ModelOptions model;
  SamplingOptions sampling;
  std::vector<std::string> prompts;
  std::string messages, system;
  bool thinks = false, thinks_not = false, print_prompt = false, stats = false;
  int max_new = 2048, loop_stop = 128;
};

bool is_once(const Options& options) {
  return !options.prompts.empty() || !options.messages.empty();
}

void add_options(CLI::App& app, Options& options) {
  add_model_options(app, options.model);
  add_sampling_options(app, options.sampling);
  app.add_option("--prompt", options.prompts,
                 "answer this and end; given several times, one after the other")
      ->allow_extra_args(false);
  app.add_option("--messages", options.messages,
                 "go on with a conversation: a JSON list of messages, or an object with messages, "
                 "tools, enable_thinking; -: from stdin");
  app.add_option("--system", options.system, "a system message to begin with")
      ->excludes("--messages");
  app.add_flag("--think", options.thinks, "think before answering");
  app.add_flag("--no-think", options.thinks_not, "answer at once")->excludes("--think");
  add_integer(app, "--max-new", options.max_new, 0, 1 << 20, "most tokens of an answer")
      ->capture_default_str();
  add_integer(app, "--loop-stop", options.loop_stop, 0, 1 << 20,
              "end an answer after so many tokens of exact repetition (0: never)")
      ->capture_default_str();
  app.add_flag("--print-prompt", options.print_prompt,
               "print text and ids of what the model would read, as JSON, and end");
  app.add_flag("--stats", options.stats, "after each answer: what it took");
  app.callback([&] {
    if (app.count("--messages") > 0 && options.messages.empty()) {
      throw CLI::ValidationError("--messages", "found nothing, expected the name of a file, or -");
    }
    if (!options.print_prompt || is_once(options)) return;
    throw CLI::ValidationError("--print-prompt", "needs --prompt or --messages");
  });
}

void remark(const std::string& text) {
  if (!text.empty()) std::fprintf(stderr, "%s\n", on_one_line(text).c_str());
}

// Without --model and $QWEN_MODEL, a Qwen3.5 that was downloaded before is better than the built-in
// model.
void choose_model(const CLI::App& app, ModelOptions& options) {
  const char* chosen = std::getenv("QWEN_MODEL");
  if (app.count("--model") > 0 || (chosen != nullptr && *chosen != '\0')) return;
  const HubCache cache = search_hub_cache();
  for (const std::string& line : cache.remarks) remark(line);
  options.model = cache.model.value_or(options.model);
  remark("model: " + options.model);
}

Chat begin_chat(const Options& options) {
  Chat chat;
  if (!options.messages.empty()) {
    const std::string name = name_of_input(options.messages);
    chat = chat_from_json(parse_ordered_json(read_input(options.messages), name), name);
  }
  if (!options.system.empty()) {
    chat.messages.push_back({Role::system, repair_utf8(options.system)});
  }
  if (options.thinks || options.thinks_not) chat.enable_thinking = options.thinks;
  return chat;
}

// Where the last message is the assistant's, it has been thought about already.
std::string remark_on_continuing(const Options& options) {
  const bool asked = options.thinks || options.thinks_not;
  const char* option = options.thinks ? "--think" : "--no-think";
  return "the last message is the assistant's: it is continued" +
         (asked ? std::string(", and ") + option + " changes nothing" : "");
}

void print_prompt(const Options& options, const Tokenizer& tokenizer, const ChatTemplate& form) {
  Chat chat = begin_chat(options);
  for (const std::string& text : options.prompts) {
    chat.messages.push_back({Role::user, repair_utf8(text)});
  }
  const Prompt prompt = render(form, tokenizer, chat);
  const OrderedJson json = {{"text", prompt.text}, {"ids", prompt.ids}};
  std::printf("%s\n", python_json(json).c_str());
  if (chat.messages.back().role == Role::assistant) remark(remark_on_continuing(options));
}

// The answer goes to stdout as it comes, what was thought before to stderr, dimmed.
class Display {
 public:
  ~Display() {
    if (thinks_ && is_terminal_) std::fputs("\x1b[0m", stderr);
  }
  void show(Section section, std::string_view text) {
    const bool thinks = section == Section::thought;
    if (thinks != thinks_ && is_terminal_) std::fputs(thinks ? "\x1b[2m" : "\x1b[0m", stderr);
    if (thinks_ && !thinks) std::fputs("\n\n", stderr);
    thinks_ = thinks;
    std::FILE* stream = thinks ? stderr : stdout;
    std::fwrite(text.data(), 1, text.size(), stream);
    std::fflush(stream);
  }
  void end() { show(Section::content, "\n"); }

 private:
  const bool is_terminal_ = isatty(STDERR_FILENO);
  bool thinks_ = false;
};

// Shows an answer while `speak` makes it. The first Ctrl-C stops it.
template <class Speak>
void show_answer(ChatSession& session, const Options& options, Speak speak) {
  Display display;
  const std::string ending = speak(
      [&](Section section, std::string_view text) { display.show(section, text); }, interrupted);
  display.end();
  remark(ending);
  if (options.stats) std::printf("%s\n", describe(session.last, session).c_str());
}

// Answers the messages as they are.
void answer_messages(ChatSession& session, const Options& options) {
  const std::vector<Message>& messages = session.conversation.chat.messages;
  const bool continues = !messages.empty() && messages.back().role == Role::assistant;
  show_answer(session, options, [&](const OnText& on_text, const WantsToStop& stop) {
    session.last = answer(session.voice, session.conversation, session.options, on_text, stop);
    return ending_remark(session.last, session.options);
  });
  // Not before: what cannot be continued is an error.
  if (continues) remark(remark_on_continuing(options));
}

void answer_once(ChatSession& session, const Options& options) {
  watch_for_interrupt();
  if (options.prompts.empty()) answer_messages(session, options);
  for (const std::string& text : options.prompts) {
    if (interrupted()) break;
    show_answer(session, options, [&](const OnText& on_text, const WantsToStop& stop) {
      return say(session, repair_utf8(text), on_text, stop);
    });
  }
  if (interrupted()) throw std::runtime_error("interrupted: the answer is not complete");
}

void talk(ChatSession& session, const Options& options) {
  LineInput input;
  if (input.is_terminal()) remark("/help lists the commands, Ctrl-D ends the program");
  int refused = 0;
  watch_for_interrupt();
  while (const auto line = input.next()) {
    const std::string text(strip(*line));
    if (text.empty()) continue;
    try {
      if (is_command(text)) {
        std::printf("%s\n", run_command(session, text).c_str());
        std::fflush(stdout);
        continue;
      }
      watch_for_interrupt();
      show_answer(session, options, [&](const OnText& on_text, const WantsToStop& stop) {
        return say(session, repair_utf8(text), on_text, stop);
      });
    } catch (const std::invalid_argument& error) {
      remark(error.what());
      ++refused;
    } catch (const std::runtime_error& error) {
      // A file that is not there need not end a conversation; without a human, nobody would notice.
      if (!is_command(text) || !input.is_terminal()) throw;
      remark(error.what());
    }
    watch_for_interrupt();
  }
  if (input.is_terminal()) {
    std::fputs("\n", stderr);
  } else if (refused > 0) {
    throw std::runtime_error(counted(refused, "line") + " could not be done");
  }
}

void run(const CLI::App& app, Options& options) {
  choose_model(app, options.model);
  const std::string& path = options.model.model;
  const Tokenizer tokenizer = load_tokenizer(path);
  const FoundTemplate found = find_template(path, read_config(path));
  for (const std::string& line : tokenizer.remarks) remark(line);
  for (const std::string& line : found.remarks) remark(line);
  if (options.thinks && found.form.form != ChatForm::qwen3_5) {
    throw std::invalid_argument("--think: this model's chat template knows no thinking");
  }
  if (options.print_prompt) return print_prompt(options, tokenizer, found.form);

  Model model = open_model(options.model);
  model.config.eos_token_id = end_tokens(model.config, tokenizer);
  const Ops ops = fast_ops();
  ChatSession session{
      {model, ops, tokenizer, found.form},
      {chosen_sampling(options.sampling, read_sampling(path)), options.max_new, options.loop_stop},
      empty_conversation(model.config),
      {}};
  session.conversation.chat = begin_chat(options);
  is_once(options) ? answer_once(session, options) : talk(session, options);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Chapter 12: talks with a model");
  Options options;
  add_options(app, options);
  return run_program(app, argc, argv, [&] { run(app, options); });
}
