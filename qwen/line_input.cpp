#include "qwen/line_input.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <stdexcept>

#ifdef QWEN_HAS_LIBEDIT
#include <histedit.h>
#include <termios.h>

#include <clocale>
#include <csignal>
#include <cstdlib>
#endif

namespace qwen {

#ifdef QWEN_HAS_LIBEDIT

namespace {

// While a line is edited the terminal shows no keys by itself. Who ends the program then (kill, a
// closed window) must find it as it was.
termios terminal_before;

void leave_terminal_as_before(int signal) {
  tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
  raise(signal);  // once more, and now without this handler
}

void watch_terminal() {
  if (tcgetattr(STDIN_FILENO, &terminal_before) != 0) return;
  struct sigaction restore = {};
  restore.sa_handler = leave_terminal_as_before;
  restore.sa_flags = SA_RESETHAND;
  for (const int signal : {SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction before;
    sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_DFL) sigaction(signal, &restore, nullptr);  // nohup ignores one
  }
}

}  // namespace

// libedit: keys as everywhere, arrows for earlier lines.
struct LineInput::Editor {
  EditLine* line;
  History* history;
  bool gives_up = false;

  Editor() : line(el_init("ch12_chat", stdin, stderr, stderr)), history(history_init()) {
    HistEvent event;
    ::history(history, &event, H_SETSIZE, 1000);
    el_set(line, EL_CLIENTDATA, this);
    el_set(
        line, EL_PROMPT, +[](EditLine*) { return const_cast<char*>("> "); });
    el_set(line, EL_EDITOR, "emacs");
    el_set(line, EL_HIST, ::history, history);
    // While a line is edited, Ctrl-C is a key and no signal.
    el_set(line, EL_SETTY, "-d", "-isig", nullptr);
    // Wide: the library makes a wide copy of narrow texts, and never frees it.
    el_wset(line, EL_ADDFN, L"give-up", L"gives the line up", give_up);
    el_set(line, EL_BIND, "^C", "give-up", nullptr);
  }
  ~Editor() {
    el_end(line);
    history_end(history);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  static unsigned char give_up(EditLine* line, int) {
    Editor* editor = nullptr;
    el_get(line, EL_CLIENTDATA, &editor);
    editor->gives_up = true;
    std::fputs("^C\n", stderr);
    return CC_NEWLINE;
  }

  std::optional<std::string> next() {
    gives_up = false;
    // Before the prompt is there: who sees it may press keys at once.
    el_set(line, EL_PREP_TERM, 1);
    int count = 0;
    const char* text = el_gets(line, &count);
    if (gives_up) return "";
    if (text == nullptr || count <= 0) return std::nullopt;
    std::string typed(text, count);
    if (typed.ends_with('\n')) typed.pop_back();
    HistEvent event;
    if (!typed.empty()) ::history(history, &event, H_ENTER, typed.c_str());
    return typed;
  }
};

namespace {

// The library drops what the locale's characters do not have: in the locale "C", all but ASCII.
bool set_utf8() {
  for (const char* locale : {"", "C.UTF-8", "UTF-8"}) {
    if (std::setlocale(LC_CTYPE, locale) != nullptr && MB_CUR_MAX > 1) return true;
  }
  return false;
}

}  // namespace

LineInput::LineInput() {
  if (!is_terminal() || !set_utf8()) return;
  watch_terminal();
  editor_ = std::make_unique<Editor>();
}

#else

struct LineInput::Editor {
  std::optional<std::string> next() { return std::nullopt; }
};

LineInput::LineInput() = default;

#endif

LineInput::~LineInput() = default;

bool LineInput::is_terminal() const {
  return isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

std::optional<std::string> LineInput::next() {
  if (editor_) return editor_->next();
  if (is_terminal()) std::cerr << "> ";
  std::string line;
  if (!std::getline(std::cin, line)) {
    if (std::ferror(stdin)) throw std::runtime_error("stdin cannot be read");
    return std::nullopt;
  }
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

}  // namespace qwen
