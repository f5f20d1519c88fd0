// On what a figure was measured: without it, the figure says nothing.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "qwen/json.h"

namespace qwen {

std::size_t total_memory();
std::size_t free_memory();  // what programs can have without swapping, within a container's limit
std::size_t resident_memory();  // of this process

// The system's load average over a minute: how many threads want to run, ours included.
double load_average();

// CPU, cores, caches, memory, compiler, BLAS and its kernel, our kernel, system, git revision.
OrderedJson machine_record();

// The same on two or three lines.
std::string describe(const OrderedJson& machine);

}  // namespace qwen
