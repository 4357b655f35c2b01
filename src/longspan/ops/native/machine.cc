// What the Python side asks and tells a library: the best instruction set of this processor, and how many threads.
#include "threads.h"

extern "C" __attribute__((visibility("default"))) void longspan_set_threads(long count) {
  longspan::set_threads(count);
}

extern "C" __attribute__((visibility("default"))) const char* longspan_instruction_set() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq")) {
    return "avx512";
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
#endif
  return "portable";
}
