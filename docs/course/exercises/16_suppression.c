// Exercise 16 of docs/course/nms.md: the greedy scan over the bits of all overlaps. Go through the boxes in order, and
// keep in `gone` a bit for each box that a survivor overlaps: then each box needs one test, and each survivor one OR
// per word.
#include "docs/course/exercises/exercises.h"

enum { MOST_WORDS = 64 }; // 4096 boxes

void suppress_by_bits(int n, const uint64_t *overlaps, uint64_t *survivors) {
  const int words = (n + 63) / 64;
  uint64_t gone[MOST_WORDS] = {0};
  for (int w = 0; w < words; w++) survivors[w] = 0;
  // ---- your code ----
  // ---- end of your code ----
}
