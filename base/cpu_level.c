// Compiled for every x86-64, whatever MARCH says.
#include "base/cpu_level.h"
#include <stdbool.h>
#include <stddef.h>

// Of x86-64, set by the Makefile: the level that MARCH names; 0: it names a processor, which the builder answers for.
#ifdef MARCH_LEVEL
#include <cpuid.h>

// Compilers know some features by name, which includes that the system saves their registers.
#define HAS(feature) (__builtin_cpu_supports(feature) != 0)

static bool has_v2(void) {
  unsigned a, b, c = 0, d;
  return HAS("ssse3") && HAS("sse4.1") && HAS("sse4.2") && HAS("popcnt") && __get_cpuid(1, &a, &b, &c, &d) &&
         (c & bit_CMPXCHG16B);
}

static bool has_v3(void) {
  unsigned a, b, c = 0, d, extended = 0;
  return HAS("avx2") && HAS("fma") && HAS("bmi") && HAS("bmi2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) &&
         (c & bit_MOVBE) && __get_cpuid(0x80000001, &a, &b, &extended, &d) && (extended & bit_LZCNT);
}

static bool has_v4(void) {
  return HAS("avx512f") && HAS("avx512bw") && HAS("avx512cd") && HAS("avx512dq") && HAS("avx512vl");
}

int cpu_level(void) {
  __builtin_cpu_init();
  return !has_v2() ? 1 : !has_v3() ? 2 : !has_v4() ? 3 : 4;
}

const char *cpu_refusal(void) {
  static const char *const sentences[] = {
      [2] = "this CPU is too old: this build needs x86-64-v2 (SSE4.2; Intel and AMD since 2011)",
      [3] = "this CPU is too old: this build needs x86-64-v3 (AVX2, FMA); make MARCH=x86-64-v2 builds for older ones",
      [4] = "this CPU has no AVX-512: this build needs x86-64-v4; make MARCH=x86-64-v2 builds for all since 2011"};
  return cpu_level() < MARCH_LEVEL ? sentences[MARCH_LEVEL] : NULL;
}
#else
int cpu_level(void) { return 0; }
const char *cpu_refusal(void) { return NULL; }
#endif
