#include "lib/staging.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

enum { PASSED_OFTEN = 4 };

bool staging_init(Staging *s, Device *dev, int images, int queue, int canvases, int running) {
  const int n = (queue + images - 1) / images + canvases + running;
  *s = (Staging){.images = images};
  s->list = xcalloc((size_t)n, sizeof *s->list);
  s->n = n; // not before: staging_free follows if there is no memory for the list
  s->info = device_host_alloc(dev, (size_t)s->n * (size_t)images * sizeof *s->info);
  if (!s->info) return false;
  for (int i = 0; i < s->n; i++) {
    StagedBatch *b = &s->list[i];
    const size_t n_images = (size_t)images;
    b->slot = xcalloc(n_images, sizeof *b->slot);
    b->batch.images = images;
    b->batch.index = xcalloc(n_images, sizeof *b->batch.index);
    b->batch.info = s->info + (size_t)i * n_images;
    memset(b->batch.info, 0, n_images * sizeof *b->batch.info);
    b->batch.count = xcalloc(n_images, sizeof *b->batch.count);
    staging_release(b);
  }
  return true;
}

void staging_free(Staging *s, Device *dev) {
  for (int i = 0; i < s->n; i++) {
    StagedBatch *b = &s->list[i];
    if (b->room) device_host_free(dev, b->batch.bytes);
    free(b->slot);
    free(b->batch.index);
    free(b->batch.count);
  }
  if (s->info) device_host_free(dev, s->info);
  free(s->list);
  *s = (Staging){0};
}

// Of those that are free, the one with the most memory, so that others need none.
static StagedBatch *begin(Staging *s, int canvas) {
  StagedBatch *most = NULL;
  for (int i = 0; i < s->n; i++) {
    StagedBatch *b = &s->list[i];
    if (b->state == STAGE_FREE && (!most || b->room > most->room)) most = b;
  }
  CHECK(most);
  most->state = STAGE_FORMING;
  most->passed = 0;
  most->age = s->age++;
  most->batch.canvas = canvas;
  return most;
}

StagedBatch *staging_forming(Staging *s, int canvas) {
  for (int i = 0; i < s->n; i++) {
    StagedBatch *b = &s->list[i];
    if (b->state == STAGE_FORMING && b->batch.canvas == canvas && b->batch.used < s->images) return b;
  }
  return begin(s, canvas);
}

void staging_append(StagedBatch *b, StageSlot slot, const ImageInfo *size) {
  const int i = b->batch.used++;
  b->filling = true;
  b->slot[i] = slot;
  b->batch.index[i] = 0;
  b->batch.info[i] = *size;
  b->batch.info[i].offset = b->batch.num_bytes;
  b->batch.num_bytes += 3 * (int64_t)size->h * size->w;
  CHECK((size_t)b->batch.num_bytes <= b->room);
}

static void take_back(StagedBatch *b) {
  const int i = --b->batch.used;
  b->batch.num_bytes = b->batch.info[i].offset;
  b->slot[i] = (StageSlot){0};
  b->batch.index[i] = -1;
  b->batch.info[i] = (ImageInfo){0};
}

int staging_cancel(Staging *s, const void *owner, StagingTold *told) {
  int freed = 0;
  for (int i = 0; i < s->n; i++) {
    StagedBatch *b = &s->list[i];
    if (b->state != STAGE_FORMING || b->filling) continue;
    bool empty = b->batch.used > 0;
    for (int k = 0; k < b->batch.used; k++) {
      StageSlot *p = &b->slot[k];
      if (p->owner && p->owner == owner) {
        told(p);
        p->owner = NULL;
      }
      empty = empty && !p->owner;
    }
    if (!empty) continue;
    freed += b->batch.used;
    staging_release(b);
  }
  return freed;
}

static const StagedBatch *older(const StagedBatch *a, const StagedBatch *b) { return !a || b->age < a->age ? b : a; }

StagedBatch *staging_filling(const Staging *s) {
  const StagedBatch *oldest = NULL;
  for (int i = 0; i < s->n; i++)
    if (s->list[i].filling) oldest = older(oldest, &s->list[i]);
  return oldest ? &s->list[oldest - s->list] : NULL;
}

StagedBatch *staging_next(const Staging *s, bool partly) {
  const StagedBatch *full = NULL, *part = NULL;
  for (int i = 0; i < s->n; i++) {
    const StagedBatch *b = &s->list[i];
    if (b->state != STAGE_FORMING || b->filling || !b->batch.used) continue;
    if (b->batch.used == s->images)
      full = older(full, b);
    else
      part = older(part, b);
  }
  const bool turn = part && (full ? part->passed >= PASSED_OFTEN && part->age < full->age : partly);
  const StagedBatch *next = turn ? part : full;
  if (next && next == full)
    for (int i = 0; i < s->n; i++) s->list[i].passed += s->list[i].age < next->age;
  return next ? &s->list[next - s->list] : NULL;
}

void staging_release(StagedBatch *b) {
  while (b->batch.used > 0) take_back(b);
  for (int i = 0; i < b->batch.images; i++) b->batch.index[i] = -1;
  b->state = STAGE_FREE;
}

bool staging_grow(StagedBatch *b, Device *dev, size_t bytes) {
  uint8_t *grown = device_host_alloc(dev, bytes);
  if (!grown) return false;
  if (b->batch.num_bytes) memcpy(grown, b->batch.bytes, (size_t)b->batch.num_bytes);
  if (b->room) device_host_free(dev, b->batch.bytes);
  b->batch.bytes = grown;
  b->room = bytes;
  return true;
}
