// The parts `task`, one configuration and nothing else, and `device`, one on each device; and how
// the other parts have configurations measured in processes of their own.
#pragma once

#include "qwen/processes.h"
#include "qwen/speed.h"

namespace qwen {

// Prefill and decode of the model as it is, beside its limits.
std::string task_part(Speed& speed);

// The same on every device there is.
std::string device_part(Speed& speed);

// Rows of the task for each configuration, for that part, each measured in processes of its own,
// and what those have shown of the limits.
void add_process_rows(Speed& speed, const std::string& part,
                      const std::vector<Configuration>& configurations);

}  // namespace qwen
