// OpenBLAS chooses its kernels when the program starts, by the CPU's model number. A release that
// is older than the CPU takes one of the slowest, several times slower than what the CPU can do.
#pragma once

namespace qwen {

// Starts the program anew with $OPENBLAS_CORETYPE set where OpenBLAS has taken a kernel without
// vector instructions this program was compiled for; says so on stderr. Call it first in main.
void choose_blas_kernel(char** argv);

}  // namespace qwen
