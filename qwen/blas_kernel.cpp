#include "qwen/blas_kernel.h"

#include <cblas.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace qwen {

void choose_blas_kernel([[maybe_unused]] char** argv) {
#if defined(__linux__) && (defined(__AVX512F__) || defined(__AVX2__))
#if defined(__AVX512F__)
  const char* right = "SkylakeX";
#else
  const char* right = "Haswell";
#endif
  const std::string taken = openblas_get_corename();
  const bool is_old = taken == "Prescott" || taken == "Core2" || taken == "Generic";
  if (!is_old || std::getenv("OPENBLAS_CORETYPE")) return;
  std::fprintf(stderr, "OpenBLAS does not know this CPU and took its kernels for %s: trying %s\n",
               taken.c_str(), right);
  setenv("OPENBLAS_CORETYPE", right, 1);
  execv("/proc/self/exe", argv);  // goes on below only where it fails: with the slow kernels
#endif
}

}  // namespace qwen
