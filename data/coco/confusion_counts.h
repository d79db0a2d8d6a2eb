// The counts of a confusion matrix, for one or several scores. Only cells that were counted take memory: the whole
// matrix of thousands of classes would take gigabytes.
#pragma once
#include <stddef.h>
#include <stdint.h>

// Starts as {.scores = n}.
typedef struct ConfusionCounts {
  int scores;
  size_t cells;
  int64_t *cell;  // [cells] row * classes + column
  int64_t *count; // [cells, scores]
  // A hash table of the cells, until they are sorted.
  size_t cells_cap, counts_cap, *slot, slot_mask; // slot [slot_mask + 1]: index of a cell plus 1; 0: free
} ConfusionCounts;

void confusion_count(ConfusionCounts *c, int64_t cell, int score); // adds one
// Puts the cells in ascending order, which does not depend on the order of the calls above. These may not follow.
void confusion_counts_sort(ConfusionCounts *c);
void confusion_counts_free(ConfusionCounts *c);
