// What the tests of the loader share: its options for training, and batches as hashes.
#pragma once
#include <stdlib.h>
#include "data/batches/loader.h"
#include "test/harness/test.h"

static inline LoaderOptions training(int batch) {
  return (LoaderOptions){.batch = batch,
                         .world = 1,
                         .seed = 9,
                         .train = true,
                         .augment = {.flip = 0.5f},
                         .threads = 2,
                         .prefetch = 2,
                         .masks = true};
}

// Memory that begins as zeros: a stale value of an earlier batch is then wrong, but never out of range.
static inline void *zeroed_alloc(void *context, size_t bytes) {
  (void)context;
  return calloc(1, bytes);
}
static inline void zeroed_free(void *context, void *p) {
  (void)context;
  free(p);
}
static const HostMemory zeroed_memory = {zeroed_alloc, zeroed_free, NULL};

// A hash of all a batch holds, so that two runs can be compared step by step.
static inline uint64_t hash_bytes(uint64_t key, const void *data, size_t bytes) {
  const uint8_t *p = data;
  for (size_t i = 0; i < bytes; i++) key = (key ^ p[i]) * 0x100000001b3u; // FNV-1a
  return key;
}
static inline uint64_t hash_batch(const Batch *b) {
  const BatchSize size = batch_size(b);
  uint64_t key = hash_bytes(0xcbf29ce484222325u, &b->step, sizeof b->step);
  key = hash_bytes(key, b->index, (size_t)b->images * sizeof *b->index);
  for (BatchArray a = 0; a < BATCH_ARRAYS; a++) {
    const size_t n = batch_elements(&size, a);
    if (a == BATCH_INFO || a == BATCH_BITMAP) continue; // below
    key = n ? hash_bytes(key, batch_array(b, a), n * batch_layout[a].element) : key;
  }
  for (int i = 0; i < b->images; i++) { // member by member: padding bytes are nobody's
    const ImageInfo *m = &b->info[i];
    int64_t values[] = {m->offset, m->h, m->w, m->rh, m->rw, m->flip, (int64_t)m->key, m->view.moved, m->view.coloured};
    key = hash_bytes(key, values, sizeof values);
    key = hash_bytes(key, m->view.map, sizeof m->view.map);
    float colours[] = {m->view.brightness, m->view.contrast, m->view.saturation, m->view.mean};
    key = hash_bytes(key, colours, sizeof colours);
  }
  for (int i = 0; i < b->images * b->capacity; i++) {
    const Bitmap *m = &b->bitmap[i];
    int64_t values[] = {m->offset, m->x, m->y, m->w, m->h, m->parts};
    key = hash_bytes(key, values, sizeof values);
  }
  return key;
}

// Hashes of the first steps of a run.
static inline void run_hashes(const Dataset *d, const LoaderOptions *o, uint64_t *hash, int steps) {
  Err err;
  Loader *l = loader_open(d, o, &err);
  if (!EXPECT(l)) return;
  for (int i = 0; i < steps; i++) {
    const Batch *b = loader_next(l, &err);
    if (!EXPECT(b)) break;
    hash[i] = hash_batch(b);
  }
  loader_close(l);
}
