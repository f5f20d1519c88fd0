// Ctrl-C as a wish: what runs is finished or given up at a good place, what is finished is shown.
#pragma once

namespace qwen {

// From now on the first Ctrl-C only sets a flag; a second one ends the program at once. Called
// again, it starts over: the flag is down.
void watch_for_interrupt();

bool interrupted();

// What to throw to leave from within.
struct Interrupted {};

}  // namespace qwen
