// Streaming top-k in k slots: a binary heap whose root is the worst item kept, so that nearly all of a long stream is
// turned away by one comparison. Best = highest score, then lowest index; that order is total, so the result does not
// depend on the order of arrival.
#pragma once
#include <stdbool.h>

typedef struct TopKItem {
  double score; // float scores and 32-bit random numbers fit exactly; never NaN
  int index;
  int row; // the payload: the caller's, carried along
} TopKItem;

typedef struct TopK {
  TopKItem *items; // [k], the caller's memory; a heap as soon as it is full
  int n, k;
} TopK;

static inline bool topk_before(const TopKItem *a, const TopKItem *b) {
  return a->score > b->score || (a->score == b->score && a->index < b->index);
}

// Sifts items[at] down below every child worse than it.
static inline void topk_sift_down(TopKItem *items, int n, int at) {
  TopKItem x = items[at];
  for (int child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && topk_before(&items[child], &items[child + 1])) child++;
    if (!topk_before(&x, &items[child])) break;
    items[at] = items[child];
  }
  items[at] = x;
}

static inline void topk_heapify(TopK *t) {
  for (int i = t->n / 2 - 1; i >= 0; i--) topk_sift_down(t->items, t->n, i);
}

// Keeps x if it is among the k best so far.
static inline void topk_offer(TopK *t, TopKItem x) {
  if (t->n < t->k) {
    t->items[t->n++] = x;
    if (t->n == t->k) topk_heapify(t);
  } else if (t->k > 0 && topk_before(&x, &t->items[0])) {
    t->items[0] = x;
    topk_sift_down(t->items, t->n, 0);
  }
}

// Heapsort: puts what was kept in order, best first. No more may be offered afterwards.
static inline void topk_sort(TopK *t) {
  topk_heapify(t);
  for (int n = t->n - 1; n > 0; n--) {
    TopKItem worst = t->items[0];
    t->items[0] = t->items[n];
    t->items[n] = worst;
    topk_sift_down(t->items, n, 0);
  }
}

// Puts what was kept in ascending order of index.
static inline void topk_sort_by_index(TopK *t) {
  for (int i = 0; i < t->n; i++) t->items[i].score = 0;
  topk_sort(t);
}
