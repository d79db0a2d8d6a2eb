// Compares with the definition of greedy suppression, on sets of intervals of a line.
#include <inttypes.h>
#include <string.h>
#include "base/rng.h"
#include "docs/course/exercises/check.h"
#include "docs/course/exercises/exercises.h"

enum { MOST = 200, WORDS = (MOST + 63) / 64 };

static bool overlap(const int *at, int length, int i, int j) { return abs(at[i] - at[j]) < length; }

static void check(int set, int n, int length) {
  const int words = (n + 63) / 64;
  int at[MOST];
  static uint64_t overlaps[MOST * WORDS], survivors[WORDS + 1];
  bool kept[MOST];
  for (int i = 0; i < n; i++) at[i] = (int)(rng_u32((uint64_t)set, (uint64_t)i) % 1000);
  memset(overlaps, 0, sizeof overlaps);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < 64 * words; j++) {
      const bool unwritten = j / 64 < i / 64;
      if (unwritten || (j < n && overlap(at, length, i, j))) overlaps[i * words + j / 64] |= (uint64_t)1 << j % 64;
    }
  memset(survivors, 0x5a, sizeof survivors);
  suppress_by_bits(n, overlaps, survivors);
  for (int i = 0; i < n; i++) {
    kept[i] = true;
    for (int j = 0; j < i; j++) kept[i] &= !(kept[j] && overlap(at, length, i, j));
    if ((bool)(survivors[i / 64] >> i % 64 & 1) != kept[i])
      difference("set %d, %d boxes: box %d %s", set, n, i, kept[i] ? "survives" : "does not survive");
  }
  for (int i = n; i < 64 * words; i++)
    if (survivors[i / 64] >> i % 64 & 1) difference("set %d: there are %d boxes, and bit %d is set", set, n, i);
  if (survivors[words] != 0x5a5a5a5a5a5a5a5au) difference("set %d: a word past the last is written", set);
}

int main(void) {
  static const int sizes[] = {1, 2, 63, 64, 65, 128, 130, MOST};
  for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++)
    for (int length = 1; length < 400; length = 3 * length + 1) check(10 * i + length, sizes[i], length);
  return solved();
}
