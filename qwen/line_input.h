// Lines that a user types: edited and remembered on a terminal, as they come from anything else.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace qwen {

class LineInput {
 public:
  LineInput();
  ~LineInput();

  // Whether a human is typing. Only then is there a prompt, on stderr, where it mixes with nothing.
  bool is_terminal() const;

  // The next line without its end; nothing at the end of the input. Ctrl-C gives up what has been
  // typed: an empty line. std::runtime_error where stdin cannot be read.
  std::optional<std::string> next();

 private:
  struct Editor;
  std::unique_ptr<Editor> editor_;  // of a terminal, where the library is there
};

}  // namespace qwen
