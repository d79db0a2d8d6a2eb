#include "data/coco/confusion_counts.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/rng.h"

static size_t slot_of(const ConfusionCounts *c, int64_t cell) {
  size_t i = (size_t)rng_key(0, (uint64_t)cell) & c->slot_mask;
  while (c->slot[i] && c->cell[c->slot[i] - 1] != cell) i = (i + 1) & c->slot_mask;
  return i;
}

static void add_slots(ConfusionCounts *c) {
  const size_t slots = MAX(2 * (c->slot_mask + 1), 1024);
  free(c->slot);
  c->slot = xcalloc(slots, sizeof *c->slot);
  c->slot_mask = slots - 1;
  for (size_t k = 0; k < c->cells; k++) c->slot[slot_of(c, c->cell[k])] = k + 1;
}

void confusion_count(ConfusionCounts *c, int64_t cell, int score) {
  if (2 * c->cells >= c->slot_mask) add_slots(c); // at most half are taken
  size_t *slot = &c->slot[slot_of(c, cell)];
  const size_t scores = (size_t)c->scores;
  if (!*slot) {
    array_reserve((void **)&c->cell, &c->cells_cap, c->cells + 1, sizeof *c->cell);
    array_reserve((void **)&c->count, &c->counts_cap, (c->cells + 1) * scores, sizeof *c->count);
    c->cell[c->cells] = cell;
    memset(c->count + c->cells * scores, 0, scores * sizeof *c->count);
    *slot = ++c->cells;
  }
  c->count[(*slot - 1) * scores + (size_t)score]++;
}

typedef struct CellPosition {
  int64_t cell;
  size_t at;
} CellPosition;

static int compare_position(const void *a, const void *b) {
  const CellPosition *p = a, *q = b;
  return (p->cell > q->cell) - (p->cell < q->cell);
}

void confusion_counts_sort(ConfusionCounts *c) {
  const size_t scores = (size_t)c->scores, row = scores * sizeof *c->count;
  ConfusionCounts sorted = {.scores = c->scores,
                            .cells = c->cells,
                            .cell = xmalloc(c->cells * sizeof *c->cell),
                            .count = xmalloc(c->cells * row)};
  CellPosition *order = xmalloc(c->cells * sizeof *order);
  for (size_t k = 0; k < c->cells; k++) order[k] = (CellPosition){c->cell[k], k};
  qsort(order, c->cells, sizeof *order, compare_position);
  for (size_t k = 0; k < c->cells; k++) {
    sorted.cell[k] = order[k].cell;
    memcpy(sorted.count + k * scores, c->count + order[k].at * scores, row);
  }
  free(order);
  confusion_counts_free(c);
  *c = sorted;
}

void confusion_counts_free(ConfusionCounts *c) {
  free(c->cell);
  free(c->count);
  free(c->slot);
  *c = (ConfusionCounts){0};
}
