// OpenBLAS chooses its kernels when the program starts, by the CPU's model number. A release that
// is older than the CPU takes one of the slowest, several times slower than what the CPU can do.
#pragma once

namespace qwen {

// Starts the program anew with $OPENBLAS_CORETYPE set where OpenBLAS has taken a kernel without
// the vector instructions this program was compiled for, and says so on stderr. Call it before any
// other work.
void choose_blas_kernel(char** argv);

}  // namespace qwen
