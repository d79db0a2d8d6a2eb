#include "data/batches/sampler.h"
#include <stdlib.h>
#include "base/rng.h"
#include "base/util.h"

enum { KEY_IMAGES, KEY_BATCHES }; // what is shuffled: the last word of the key

typedef struct RankedItem {
  uint64_t rank;
  int item;
} RankedItem;

static int compare_ranked(const void *a, const void *b) {
  const RankedItem *p = a, *q = b;
  return p->rank != q->rank ? (p->rank > q->rank) - (p->rank < q->rank) : (p->item > q->item) - (p->item < q->item);
}

// Sorts the items by a hash of each: a permutation that depends on the key and on nothing else.
static void shuffle(int *items, int n, uint64_t key, RankedItem *ranked) {
  for (int i = 0; i < n; i++) ranked[i] = (RankedItem){rng_key(key, (uint64_t)items[i]), items[i]};
  qsort(ranked, (size_t)n, sizeof *ranked, compare_ranked);
  for (int i = 0; i < n; i++) items[i] = ranked[i].item;
}

static void order_epoch(Sampler *s, int64_t epoch) {
  uint64_t key = rng_key(rng_key(s->options.seed, RNG_ORDER), (uint64_t)epoch);
  for (int i = 0; i < s->first[s->canvases]; i++) s->order[i] = s->member[i];
  for (int i = 0; i < (int)s->steps; i++) s->batch[i] = i;
  if (s->options.train) {
    for (int c = 0; c < s->canvases; c++)
      shuffle(s->order + s->first[c], s->first[c + 1] - s->first[c], rng_key(key, KEY_IMAGES), s->ranked);
    shuffle(s->batch, (int)s->steps, rng_key(key, KEY_BATCHES), s->ranked);
  }
  s->epoch = epoch;
}

void sampler_open(Sampler *s, const uint8_t *place, int n, int canvases, const SamplerOptions *options) {
  CHECK(n > 0 && canvases >= 1 && canvases <= MAX_CANVASES && options->batch >= 1);
  CHECK(options->rank >= 0 && options->rank < options->world);
  *s = (Sampler){.options = *options, .canvases = canvases, .epoch = -1};
  s->member = xmalloc((size_t)n * sizeof *s->member);
  const int64_t global_batch = (int64_t)options->batch * options->world;
  for (int c = 0, filled = 0; c < canvases; c++) {
    for (int i = 0; i < n; i++)
      if (place[i] == c) s->member[filled++] = i;
    s->first[c + 1] = filled;
    s->first_batch[c + 1] = s->first_batch[c] + (filled - s->first[c] + global_batch - 1) / global_batch;
  }
  s->steps = s->first_batch[canvases];
  s->order = xmalloc((size_t)n * sizeof *s->order);
  s->batch = xmalloc((size_t)s->steps * sizeof *s->batch);
  s->ranked = xmalloc((size_t)n * sizeof *s->ranked); // as many as images: no batch is without one
}

void sampler_close(Sampler *s) {
  free(s->member);
  free(s->order);
  free(s->batch);
  free(s->ranked);
  *s = (Sampler){0};
}

int64_t sampler_epoch(const Sampler *s, int64_t step) { return s->options.train ? step / s->steps : 0; }

int sampler_batch(Sampler *s, int64_t step, int *index) {
  const SamplerOptions *o = &s->options;
  CHECK(step >= 0 && (o->train || step < s->steps));
  int64_t epoch = sampler_epoch(s, step);
  if (s->epoch != epoch) order_epoch(s, epoch);
  int64_t batch = s->batch[step % s->steps];
  int c = 0;
  while (batch >= s->first_batch[c + 1]) c++;
  const int *group = s->order + s->first[c];
  const int size = s->first[c + 1] - s->first[c];
  const int64_t start = (batch - s->first_batch[c]) * o->batch * o->world;
  for (int i = 0; i < o->batch; i++) {
    int64_t at = start + (o->train ? (int64_t)o->rank * o->batch + i : (int64_t)i * o->world + o->rank);
    index[i] = at < size || o->train ? group[at % size] : -1;
  }
  return c;
}
