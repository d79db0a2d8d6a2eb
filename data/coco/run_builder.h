// The runs of a mask under construction, from pixel 0 on.
#pragma once
#include <stdint.h>
#include "base/alloc.h"
#include "base/scratch.h"

typedef struct RunBuilder {
  uint32_t *run;
  int n;
  size_t cap;
  Scratch *scratch; // of the runs; NULL: allocated
} RunBuilder;

// Grows *items to hold `need` of them; in `scratch`, or with realloc if that is NULL.
static inline void run_reserve(Scratch *scratch, uint32_t **items, size_t *cap, size_t need) {
  if (!scratch) {
    array_reserve((void **)items, cap, need, sizeof **items);
  } else if (need > *cap) {
    size_t more = MAX(2 * *cap, need + 64);
    *items = scratch_resize(scratch, *items, *cap * sizeof **items, more * sizeof **items);
    if (!*items) die_of_memory(more * sizeof **items, HERE);
    *cap = more;
  }
}

static inline void push_run(RunBuilder *l, uint32_t length) {
  if ((size_t)l->n == l->cap) run_reserve(l->scratch, &l->run, &l->cap, l->cap + 1);
  l->run[l->n++] = length;
}
