#include "data/batches/sampler.h"
#include <math.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "base/rng.h"

enum { KEY_IMAGES, KEY_BATCHES, KEY_REPEATS }; // what is drawn: the last word of the key

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

static double fraction(float repeat) { return (double)repeat - floor((double)repeat); }

// The items of canvas c: each image as often as the whole part of its factor, and, by systematic sampling, as many more
// as the whole part of the sum of the fractions: those at evenly spaced points of the sum, from a random start.
static void list_items(const Sampler *s, int c, uint64_t key) {
  const float *repeat = s->options.repeat;
  int *to = s->order + s->first_item[c], *const end = s->order + s->first_item[c + 1];
  double sum = 0;
  for (int k = s->first[c]; k < s->first[c + 1]; k++) {
    const int i = s->member[k], copies = repeat ? (int)repeat[i] : 1;
    for (int copy = 0; copy < copies; copy++) *to++ = i + s->n * copy;
    if (repeat) sum += fraction(repeat[i]);
  }
  const int more = (int)(end - to);
  if (!more) return;
  const double step = sum / more, start = step * (double)rng_uniform(rng_key(key, KEY_REPEATS), (uint64_t)c);
  double passed = 0;
  for (int k = s->first[c], drawn = 0; k < s->first[c + 1]; k++) {
    const int i = s->member[k];
    passed += fraction(repeat[i]);
    if (drawn < more && (start + drawn * step < passed || k + 1 == s->first[c + 1])) {
      *to++ = i + s->n * (int)repeat[i];
      drawn++;
    }
  }
  CHECK(to == end);
}

static void order_epoch(Sampler *s, int64_t epoch) {
  uint64_t key = rng_key(rng_key(s->options.seed, RNG_ORDER), (uint64_t)epoch);
  for (int c = 0; c < s->canvases; c++) list_items(s, c, key);
  const int batches = (int)s->first_batch[s->canvases];
  for (int i = 0; i < batches; i++) s->batch[i] = i;
  if (s->options.train) {
    for (int c = 0; c < s->canvases; c++)
      shuffle(s->order + s->first_item[c], s->first_item[c + 1] - s->first_item[c], rng_key(key, KEY_IMAGES),
              s->ranked);
    shuffle(s->batch, batches, rng_key(key, KEY_BATCHES), s->ranked);
  }
  s->epoch = epoch;
}

// Images per batch: of all ranks together in training, of each rank in evaluation.
static int64_t images_of_batch(const SamplerOptions *o) { return (int64_t)o->batch * (o->train ? o->world : 1); }

// Items of an epoch in canvas c.
static int count_items(const Sampler *s, int c) {
  const float *repeat = s->options.repeat;
  double sum = 0;
  int whole = 0;
  if (!repeat) return s->first[c + 1] - s->first[c];
  for (int k = s->first[c]; k < s->first[c + 1]; k++) {
    whole += (int)repeat[s->member[k]];
    sum += fraction(repeat[s->member[k]]);
  }
  return whole + (int)sum;
}

void sampler_open(Sampler *s, const uint8_t *canvas_of, int n, int canvases, const SamplerOptions *options) {
  CHECK(n > 0 && canvases >= 1 && canvases <= MAX_CANVASES && options->batch >= 1);
  CHECK(options->rank >= 0 && options->rank < options->world);
  for (int i = 0; options->repeat && i < n; i++)
    CHECK(options->repeat[i] >= 1 && (double)options->repeat[i] * n < INT32_MAX);
  *s = (Sampler){.options = *options, .n = n, .canvases = canvases, .epoch = -1};
  if (!options->train) s->options.repeat = NULL;
  s->member = xmalloc((size_t)n * sizeof *s->member);
  const int64_t images = images_of_batch(options);
  for (int c = 0, filled = 0; c < canvases; c++) {
    for (int i = 0; i < n; i++)
      if (canvas_of[i] == c) s->member[filled++] = i;
    s->first[c + 1] = filled;
    s->first_item[c + 1] = s->first_item[c] + count_items(s, c);
    s->first_batch[c + 1] = s->first_batch[c] + (s->first_item[c + 1] - s->first_item[c] + images - 1) / images;
  }
  const size_t items = (size_t)s->first_item[canvases];
  const int64_t batches = s->first_batch[canvases];
  s->steps = options->train ? batches : (batches + options->world - 1) / options->world;
  s->order = xmalloc(items * sizeof *s->order);
  s->batch = xmalloc((size_t)batches * sizeof *s->batch);
  s->ranked = xmalloc(items * sizeof *s->ranked); // enough for the batches, because each has at least one
}

void sampler_close(Sampler *s) {
  free(s->member);
  free(s->order);
  free(s->batch);
  free(s->ranked);
  *s = (Sampler){0};
}

int64_t sampler_epoch(const Sampler *s, int64_t step) { return s->options.train ? step / s->steps : 0; }

// The index in the epoch's order of this rank's batch of the step; -1: past the last one.
static int64_t batch_of_step(const Sampler *s, int64_t step) {
  const SamplerOptions *o = &s->options;
  if (o->train) return s->batch[step % s->steps];
  const int64_t at = step * o->world + o->rank;
  return at < s->first_batch[s->canvases] ? s->batch[at] : -1;
}

static int empty_batch(const Sampler *s, int *index) {
  for (int i = 0; i < s->options.batch; i++) index[i] = -1;
  return s->canvases - 1;
}

int sampler_batch(Sampler *s, int64_t step, int *index, int *copy) {
  const SamplerOptions *o = &s->options;
  CHECK(step >= 0 && (o->train || step < s->steps));
  int64_t epoch = sampler_epoch(s, step);
  if (s->epoch != epoch) order_epoch(s, epoch);
  const int64_t batch = batch_of_step(s, step);
  if (batch < 0) return empty_batch(s, index);
  int c = 0;
  while (batch >= s->first_batch[c + 1]) c++;
  const int *group = s->order + s->first_item[c];
  const int size = s->first_item[c + 1] - s->first_item[c];
  const int64_t start = (batch - s->first_batch[c]) * images_of_batch(o) + (o->train ? o->rank * o->batch : 0);
  for (int i = 0; i < o->batch; i++) {
    const int item = start + i < size || o->train ? group[(start + i) % size] : -1;
    index[i] = item < 0 ? -1 : item % s->n;
    if (copy) copy[i] = item < 0 ? 0 : item / s->n;
  }
  return c;
}
