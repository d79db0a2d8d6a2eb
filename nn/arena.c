#include "nn/arena.h"
#include <limits.h>
#include <stdlib.h>
#include "base/util.h"

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

static bool overlap(const ArenaBlock *a, const ArenaBlock *b) { return a->first <= b->last && b->first <= a->last; }

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
  for (int i = 0; i < n; i++) { // the peak is reached where some block begins
    size_t alive = 0;
    for (int j = 0; j < n; j++)
      if (blocks[j].first <= blocks[i].first && blocks[i].first <= blocks[j].last) alive += padded(blocks[j].bytes);
    bound = MAX(bound, alive);
  }
  fprintf(out, "activations %.1f MB in %d blocks (at least %.1f MB are alive at once)\n", (double)total / 1e6, n,
          (double)bound / 1e6);
  fprintf(out, "  %-40s %10s %12s  steps\n", "block", "MB", "offset");
  ArenaBlock **order = by_size(blocks, n);
  for (int i = 0; i < n; i++) {
    char last[16] = "end"; // of what is read after the program
    if (order[i]->last < INT_MAX) snprintf(last, sizeof last, "%d", order[i]->last);
    fprintf(out, "  %-40s %10.3f %12zu  %d-%s\n", order[i]->name, (double)order[i]->bytes / 1e6, order[i]->offset,
            order[i]->first, last);
  }
  free(order);
}
