// The k best of a stream in k places: a binary heap whose root is the worst one kept, so that nearly all of a long
// stream is turned away by one comparison. Best = highest score, then lowest index; that order is total, so the result
// does not depend on the order of arrival.
#pragma once
#include <stdbool.h>

typedef struct Ranked {
  double score; // float scores and 32-bit random numbers fit exactly; never NaN
  int index;
  int row; // the caller's, carried along
} Ranked;

typedef struct TopK {
  Ranked *items; // [k], the caller's memory
  int n, k;
} TopK;

static inline bool ranked_before(const Ranked *a, const Ranked *b) {
  return a->score > b->score || (a->score == b->score && a->index < b->index);
}

// Sinks items[at] below every child worse than it.
static inline void topk_sink(Ranked *items, int n, int at) {
  Ranked x = items[at];
  for (int child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && ranked_before(&items[child], &items[child + 1])) child++;
    if (!ranked_before(&x, &items[child])) break;
    items[at] = items[child];
  }
  items[at] = x;
}

static inline void topk_heapify(TopK *t) {
  for (int i = t->n / 2 - 1; i >= 0; i--) topk_sink(t->items, t->n, i);
}

static inline void topk_offer(TopK *t, Ranked x) {
  if (t->n < t->k) {
    t->items[t->n++] = x;
    if (t->n == t->k) topk_heapify(t);
  } else if (t->k > 0 && ranked_before(&x, &t->items[0])) {
    t->items[0] = x;
    topk_sink(t->items, t->n, 0);
  }
}

// Puts what was kept in order, best first. No more may be offered afterwards.
static inline void topk_sort(TopK *t) {
  topk_heapify(t);
  for (int n = t->n - 1; n > 0; n--) {
    Ranked worst = t->items[0];
    t->items[0] = t->items[n];
    t->items[n] = worst;
    topk_sink(t->items, n, 0);
  }
}

// Puts what was kept in ascending order of index.
static inline void topk_sort_by_index(TopK *t) {
  for (int i = 0; i < t->n; i++) t->items[i].score = 0;
  topk_sort(t);
}
