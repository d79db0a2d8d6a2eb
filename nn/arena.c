#include "nn/arena.h"
#include <limits.h>
#include <stdlib.h>
#include "base/alloc.h"

enum { ALIGN = 256 };

static size_t padded(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static int larger_first(const void *pa, const void *pb) {
  const ArenaBlock *a = *(ArenaBlock *const *)pa, *b = *(ArenaBlock *const *)pb;
  if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
  return (a > b) - (a < b);
}

static ArenaBlock **by_size(const ArenaBlock *blocks, int n) {
  ArenaBlock **order = xmalloc((size_t)n * sizeof *order);
  for (int i = 0; i < n; i++) order[i] = (ArenaBlock *)&blocks[i];
  if (n) qsort(order, (size_t)n, sizeof *order, larger_first);
  return order;
}

static bool idle_for(const ArenaBlock *a, const ArenaBlock *b) {
  return a->idle_after < b->first && b->last < a->idle_before;
}

static bool overlap(const ArenaBlock *a, const ArenaBlock *b) {
  return a->first <= b->last && b->first <= a->last && !idle_for(a, b) && !idle_for(b, a);
}

static bool alive(const ArenaBlock *b, int step) {
  return b->first <= step && step <= b->last && !(b->idle_after < step && step < b->idle_before);
}

size_t arena_plan(ArenaBlock *blocks, int n) {
  ArenaBlock **order = by_size(blocks, n);
  ArenaBlock **placed = xmalloc((size_t)n * sizeof *placed); // ascending by offset
  size_t total = 0;
  for (int i = 0; i < n; i++) {
    ArenaBlock *b = order[i];
    size_t at = 0;
    int slot = 0;
    for (int j = 0; j < i; j++) {
      const ArenaBlock *p = placed[j];
      if (overlap(b, p) && p->offset < at + padded(b->bytes)) at = MAX(at, p->offset + padded(p->bytes));
    }
    b->offset = at;
    while (slot < i && placed[slot]->offset <= at) slot++;
    for (int j = i; j > slot; j--) placed[j] = placed[j - 1];
    placed[slot] = b;
    total = MAX(total, at + padded(b->bytes));
  }
  free(order);
  free(placed);
  return total;
}

void arena_print(const ArenaBlock *blocks, int n, size_t total, FILE *out) {
  size_t bound = 0;
  for (int i = 0; i < n; i++) { // the peak is reached where some block begins, or ends to be idle
    size_t at_first = 0, at_again = 0;
    for (int j = 0; j < n; j++) {
      at_first += alive(&blocks[j], blocks[i].first) ? padded(blocks[j].bytes) : 0;
      at_again += alive(&blocks[j], blocks[i].idle_before) ? padded(blocks[j].bytes) : 0;
    }
    bound = MAX(bound, MAX(at_first, at_again));
  }
  fprintf(out, "activations %.1f MB in %d blocks (at least %.1f MB are alive at once)\n", (double)total / 1e6, n,
          (double)bound / 1e6);
  fprintf(out, "  %-40s %10s %12s  steps that need it\n", "block", "MB", "offset");
  ArenaBlock **order = by_size(blocks, n);
  for (int i = 0; i < n; i++) {
    const ArenaBlock *b = order[i];
    char last[16] = "end", idle[32] = ""; // "end": of what is read after the program
    if (b->last < INT_MAX) snprintf(last, sizeof last, "%d", b->last);
    if (b->idle_before) snprintf(idle, sizeof idle, "%d, %d-", b->idle_after, b->idle_before);
    fprintf(out, "  %-40s %10.3f %12zu  %d-%s%s\n", b->name, (double)b->bytes / 1e6, b->offset, b->first, idle, last);
  }
  free(order);
}
