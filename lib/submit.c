// Submitting images: they are checked, given slots in batches, and copied.
#include <string.h>
#include "base/parallel.h"
#include "data/images/shrink.h"
#include "lib/handle.h"

maskrcnn_status submit_check(maskrcnn *h, const maskrcnn_image *images, int n) {
  Err err;
  ImageInfo size;
  if (n < 0) return handle_fail(h, MASKRCNN_BAD_ARGUMENT, "n is %d: it must not be negative", n);
  if (n > 0 && !images) return handle_fail(h, MASKRCNN_BAD_ARGUMENT, "images is NULL, but n is %d", n);
  for (int i = 0; i < n; i++)
    if (opened_canvas(&h->opened, &images[i], &size, &err) < 0)
      return handle_fail(h, MASKRCNN_BAD_IMAGE, "image %d: %s", i, err.msg);
  return MASKRCNN_OK;
}

// ---- slots ----------------------------------------------------------------------------------------------------------

// What a batch of that canvas is given at once: images as large as the canvas all fit, and so does this one; after that
// it doubles, as far as the device has room, and together with that up to the largest images.
static size_t room_for(const maskrcnn *h, const StagedBatch *b, size_t need) {
  const Canvas *c = &h->opened.canvases.canvas[b->batch.canvas];
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

// All of them are given slots, or none is.
static maskrcnn_status slot(maskrcnn *h, Submission *s, int first, const maskrcnn_image *images, int n) {
  for (int i = 0; i < n; i++) {
    ImageInfo size;
    const int canvas = opened_canvas(&h->opened, &images[i], &size, NULL);
    StagedBatch *b = staging_forming(&h->staging, canvas);
    const size_t need = (size_t)(b->batch.num_bytes + 3 * (int64_t)size.h * size.w);
    if (!make_room(h, b, need)) {
      staging_withdraw(&h->staging, s, first);
      staging_filled(&h->staging);
      handle_ask(h);
      if (handle_alive(h)) return MASKRCNN_DEAD;
      return handle_fail(h, MASKRCNN_NO_MEMORY,
                         "image %d: out of memory: cannot allocate %.1f MB to stage its batch; use smaller images, a "
                         "smaller batch or a smaller queue",
                         first + i, (double)need / 1e6);
    }
    staging_append(b, (StageSlot){s, first + i, images[i].height, images[i].width}, &size);
  }
  return MASKRCNN_OK;
}

// ---- pixels ---------------------------------------------------------------------------------------------------------

// Threads that copy a batch, at most, and the bytes that one of them is worth: a core copies 5 GB/s, a photograph of 24
// megapixels in 14 ms.
enum { COPIERS = 4, WORTH_A_COPIER = 8 << 20 };

typedef struct Copying {
  const maskrcnn *h;
  const StagedBatch *b; // nobody else touches it: it is filling
  const Submission *s;
  const maskrcnn_image *images; // [n] of the submission, from image `first` on
  int first, n;
  int bands; // of rows that an image is copied in
} Copying;

static bool copies(const Copying *c, const StageSlot *p) {
  return p->owner == c->s && p->image >= c->first && p->image < c->first + c->n;
}

// A band of an image whose sides are divided by `by`.
static void copy_rows(uint8_t *to, const maskrcnn_image *from, int by, int band, int bands) {
  const int64_t row = 3 * (int64_t)from->width, pitch = from->pitch ? from->pitch : row;
  const int height = from->height / by;
  const int begin = (int)((int64_t)height * band / bands), end = (int)((int64_t)height * (band + 1) / bands);
  const uint8_t *rgb = from->rgb + pitch * by * begin;
  if (by > 1) {
    shrink_rows(rgb, pitch, by * (end - begin), from->width, by, to + 3 * (int64_t)(from->width / by) * begin);
    return;
  }
  to += row * begin;
  if (pitch == row) {
    memcpy(to, rgb, (size_t)(row * (end - begin)));
    return;
  }
  for (int y = begin; y < end; y++, to += row, rgb += pitch) memcpy(to, rgb, (size_t)row);
}

static void copy_band(void *copying, int i, int thread) {
  (void)thread;
  const Copying *c = copying;
  const int k = i / c->bands;
  const StageSlot *p = &c->b->slot[k];
  if (!copies(c, p)) return;
  const maskrcnn_image *from = &c->images[p->image - c->first];
  copy_rows(c->b->batch.bytes + c->b->batch.info[k].offset, from, opened_shrink(&c->h->opened, from), i % c->bands,
            c->bands);
}

static void copy_batch(Copying *c) {
  size_t bytes = 0;
  for (int k = 0; k < c->b->batch.used; k++) {
    const StageSlot *p = &c->b->slot[k];
    if (!copies(c, p)) continue;
    const maskrcnn_image *from = &c->images[p->image - c->first];
    bytes += 3 * (size_t)from->width * (size_t)from->height;
  }
  const int worth = (int)MIN(bytes / WORTH_A_COPIER, COPIERS);
  c->bands = worth > 1 ? parallel_threads(worth) : 1;
  parallel_for(c->b->batch.used * c->bands, c->bands, copy_band, c);
}

// Batch by batch, each of which may run when it is copied. With both locks, of which the inner one is open meanwhile.
static void copy(maskrcnn *h, const Submission *s, int first, const maskrcnn_image *images, int n) {
  StagedBatch *b;
  h->copying = true;
  handle_ask(h); // the thread is awake when they are there
  while ((b = staging_filling(&h->staging))) {
    pthread_mutex_unlock(&h->lock);
    Copying c = {.h = h, .b = b, .s = s, .images = images, .first = first, .n = n};
    copy_batch(&c);
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
  status = slot(h, s, first, images, n);
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
