#include "qwen/interrupt.h"

#include <csignal>

namespace qwen {
namespace {

volatile std::sig_atomic_t asked = 0;

}  // namespace

void watch_for_interrupt() {
  asked = 0;
  std::signal(SIGINT, [](int) {
    asked = 1;
    std::signal(SIGINT, SIG_DFL);
  });
}

bool interrupted() {
  return asked != 0;
}

}  // namespace qwen
