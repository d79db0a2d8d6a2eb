// Images of callers: looked at, given places in batches, copied.
#include <string.h>
#include "data/images/shrink.h"
#include "lib/handle.h"

maskrcnn_status submit_check(maskrcnn *h, const maskrcnn_image *images, int n) {
  Err err;
  ImageInfo size;
  if (n < 0) return handle_fail(h, MASKRCNN_BAD_ARGUMENT, "n is %d: it cannot be below 0", n);
  if (n > 0 && !images) return handle_fail(h, MASKRCNN_BAD_ARGUMENT, "images is NULL, and n is %d", n);
  for (int i = 0; i < n; i++)
    if (opened_place(&h->opened, &images[i], &size, &err) < 0)
      return handle_fail(h, MASKRCNN_BAD_IMAGE, "image %d: %s", i, err.msg);
  return MASKRCNN_OK;
}

// ---- places ---------------------------------------------------------------------------------------------------------

// What a batch of that canvas is given at once: images as large as the canvas all fit, and so does this one; after that
// it doubles, as far as the device has room, and together with that up to the largest images.
static size_t room_for(const maskrcnn *h, const StagedBatch *b, size_t need) {
  const Canvas *c = &h->opened.canvas[b->batch.canvas];
  const size_t images = (size_t)b->batch.images, usual = images * 3 * (size_t)c->h * (size_t)c->w;
  if (need <= h->room) return MIN(MAX(need, MAX(usual, 2 * b->room)), h->room);
  return MIN(MAX(need, 2 * h->room), images * 3 * (size_t)h->opened.max_pixels);
}

// By the handle's thread, which owns the memory. False when there is none.
static bool make_room(maskrcnn *h, StagedBatch *b, size_t need) {
  if (need <= b->room) return true;
  b->filling = true;
  h->grow_bytes = room_for(h, b, need);
  h->grow_least = need;
  h->grown = false;
  h->grow = b;
  handle_ask(h);
  while (h->grow && h->state == MASKRCNN_OK) pthread_cond_wait(&h->change, &h->lock);
  return h->grown;
}

// All of them have places, or none.
static maskrcnn_status place(maskrcnn *h, Submission *s, int first, const maskrcnn_image *images, int n) {
  for (int i = 0; i < n; i++) {
    ImageInfo size;
    const int canvas = opened_place(&h->opened, &images[i], &size, NULL);
    StagedBatch *b = staging_forming(&h->staging, canvas);
    const size_t need = (size_t)(b->batch.num_bytes + 3 * (int64_t)size.h * size.w);
    if (!make_room(h, b, need)) {
      staging_withdraw(&h->staging, s, first);
      staging_filled(&h->staging);
      handle_ask(h);
      if (handle_alive(h)) return MASKRCNN_DEAD;
      return handle_fail(h, MASKRCNN_NO_MEMORY,
                         "image %d: out of memory: %.1f MB asked for to stage its batch; smaller images, a smaller "
                         "batch or a smaller queue shrink it",
                         first + i, (double)need / 1e6);
    }
    opened_map(&h->opened, &size, b->batch.affine + 6 * b->batch.used);
    staging_append(b, (StagePlace){s, first + i, images[i].height, images[i].width}, &size);
  }
  return MASKRCNN_OK;
}

// ---- pixels ---------------------------------------------------------------------------------------------------------

// Both sides divided by `by`.
static void copy_image(uint8_t *to, const maskrcnn_image *from, int by) {
  const size_t row = 3 * (size_t)from->width;
  const size_t pitch = from->pitch ? (size_t)from->pitch : row;
  if (by > 1) {
    shrink_rows(from->rgb, (int64_t)pitch, from->height, from->width, by, to);
    return;
  }
  if (pitch == row) {
    memcpy(to, from->rgb, row * (size_t)from->height);
    return;
  }
  for (int y = 0; y < from->height; y++) memcpy(to + (size_t)y * row, from->rgb + (size_t)y * pitch, row);
}

// Into a batch that nobody else touches: it is filling.
static void copy_batch(const maskrcnn *h, const StagedBatch *b, const Submission *s, int first,
                       const maskrcnn_image *images, int n) {
  for (int k = 0; k < b->batch.used; k++) {
    const StagePlace *p = &b->place[k];
    if (p->owner != s || p->image < first || p->image >= first + n) continue;
    const maskrcnn_image *from = &images[p->image - first];
    copy_image(b->batch.bytes + b->batch.info[k].offset, from, opened_shrink(&h->opened, from));
  }
}

// Batch by batch, each of which may run when it is copied. With both locks, of which the inner one is open meanwhile.
static void copy(maskrcnn *h, const Submission *s, int first, const maskrcnn_image *images, int n) {
  StagedBatch *b;
  h->copying = true;
  handle_ask(h); // the thread is awake when they are there
  while ((b = staging_filling(&h->staging))) {
    pthread_mutex_unlock(&h->lock);
    copy_batch(h, b, s, first, images, n);
    pthread_mutex_lock(&h->lock);
    b->filling = false;
    handle_ask(h);
  }
  h->copying = false;
}

static void append(maskrcnn *h, Submission *s) {
  if (h->last)
    h->last->next = s;
  else
    h->first = s;
  h->last = s;
}

// With both locks.
static maskrcnn_status reserve(maskrcnn *h, Submission *s, int first, const maskrcnn_image *images, int n) {
  maskrcnn_status status = handle_alive(h);
  if (status) return status;
  if (h->waiting + n > h->opened.about.queue) return MASKRCNN_FULL;
  status = place(h, s, first, images, n);
  if (status) return status;
  s->staged += n;
  h->waiting += n;
  if (s->in_order) append(h, s);
  return MASKRCNN_OK;
}

maskrcnn_status submit_stage(maskrcnn *h, Submission *s, int first, const maskrcnn_image *images, int n) {
  pthread_mutex_lock(&h->submitting);
  pthread_mutex_lock(&h->lock);
  const maskrcnn_status status = reserve(h, s, first, images, n);
  if (status == MASKRCNN_OK) copy(h, s, first, images, n);
  if (!n) pthread_cond_broadcast(&h->change); // an empty submission is done
  pthread_mutex_unlock(&h->lock);
  pthread_mutex_unlock(&h->submitting);
  return status;
}
