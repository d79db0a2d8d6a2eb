// Masks with known runs, then random masks: decoding the runs must give the mask again.
#include <string.h>
#include "base/rng.h"
#include "docs/course/exercises/check.h"
#include "docs/course/exercises/exercises.h"

enum { MOST = 400 };

static const struct {
  int h, w;
  const char *bits;
  int n;
  uint32_t runs[8];
} known[] = {
    {2, 2, "0000", 1, {4}},       {2, 2, "1111", 2, {0, 4}},       {2, 2, "0100", 3, {2, 1, 1}},
    {2, 2, "0010", 3, {1, 1, 2}}, {2, 2, "1001", 4, {0, 1, 2, 1}}, {1, 4, "0110", 3, {1, 2, 1}},
    {4, 1, "0011", 2, {2, 2}},    {2, 3, "011011", 2, {2, 4}},     {3, 2, "010100", 3, {3, 2, 1}},
};

static void check_known(int k) {
  const int h = known[k].h, w = known[k].w;
  uint8_t bits[16];
  uint32_t runs[17] = {0};
  for (int i = 0; i < h * w; i++) bits[i] = known[k].bits[i] == '1';
  const int n = runs_of_bits(h, w, bits, runs);
  const int wanted = known[k].n;
  if (n != wanted) difference("%d x %d, rows %s: %d runs, not %d", h, w, known[k].bits, n, wanted);
  for (int i = 0; i < wanted; i++)
    if (runs[i] != known[k].runs[i])
      difference("%d x %d, rows %s: run %d is %u, not %u", h, w, known[k].bits, i, runs[i], known[k].runs[i]);
}

static void check_drawn(int mask, int h, int w) {
  uint8_t bits[MOST] = {0};
  uint32_t runs[MOST + 2];
  for (int i = 0; i < h * w; i++) bits[i] = rng_uniform((uint64_t)mask, (uint64_t)i) < 0.1f * (float)(mask % 11);
  memset(runs, 0x5a, sizeof runs);
  const int n = runs_of_bits(h, w, bits, runs);
  int at = 0;
  for (int i = 0; i < n && i <= h * w; i++) {
    if (i && !runs[i]) difference("mask %d: run %d is 0, which the first alone may be", mask, i);
    for (uint32_t k = 0; k < runs[i]; k++, at++) {
      if (at >= h * w) difference("mask %d: the runs hold more than %d pixels", mask, h * w);
      if (bits[at % h * w + at / h] != i % 2)
        difference("mask %d of %d x %d: row %d of column %d is %d", mask, h, w, at % h, at / h, 1 - i % 2);
    }
  }
  if (at != h * w) difference("mask %d: the runs hold %d of %d pixels", mask, at, h * w);
  if (runs[n] != 0x5a5a5a5au) difference("mask %d: a run past the last is written", mask);
}

int main(void) {
  for (int k = 0; k < (int)(sizeof known / sizeof *known); k++) check_known(k);
  for (int mask = 0; mask < 110; mask++) check_drawn(mask, 1 + mask % 19, 1 + mask / 6);
  return solved();
}
