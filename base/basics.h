// What every file may use without a thought: the number of elements, the smaller and the larger, an order of integers.
#pragma once

#if defined __FAST_MATH__ || __FINITE_MATH_ONLY__ || defined __ASSOCIATIVE_MATH__ || defined __RECIPROCAL_MATH__
#error "NaN checks and reproducible results need IEEE arithmetic: remove -ffast-math, -Ofast and the like from CFLAGS"
#endif

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

// For qsort.
static inline int compare_int(const void *a, const void *b) {
  const int x = *(const int *)a, y = *(const int *)b;
  return (x > y) - (x < y);
}
