#include "lib/submit.h"
#include <stdlib.h>
#include <string.h>
#include "base/parallel.h"
#include "lib/pixels.h"
#include "lib/results.h"

// ---- images that cannot be used -------------------------------------------------------------------------------------

// Image i of the submission; any thread may say so of its own.
static void refuse(maskrcnn *h, Submission *s, int i, maskrcnn_status status, const Incoming *in, const Err *err) {
  results_fail(s->results, i, status, in->h, in->w, err->msg);
  handle_log(h, MASKRCNN_LOG_WARNING, "image %d: %s", i, err->msg);
}

Incoming *submit_read(maskrcnn *h, Submission *s, const maskrcnn_image *images, int n) {
  Err err;
  Incoming *list = calloc((size_t)n + 1, sizeof *list);
  for (int i = 0; list && i < n; i++)
    if (!incoming_read(&list[i], &h->opened, images, i, &err)) {
      list[i].refused = true;
      refuse(h, s, i, MASKRCNN_BAD_IMAGE, &list[i], &err);
    }
  return list;
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
  const bool was_filling = b->filling;
  b->filling = true;
  h->grow_bytes = room_for(h, b, need);
  h->grow_least = need;
  h->grown = false;
  h->grow = b;
  handle_ask(h);
  while (h->grow && h->state == MASKRCNN_OK) pthread_cond_wait(&h->change, &h->lock);
  b->filling = was_filling;
  return h->grown;
}

static void no_room(maskrcnn *h, Submission *s, int i, const Incoming *in, size_t need) {
  Err err;
  err_set(&err,
          "out of memory: cannot allocate %.1f MB to stage its batch; use smaller images, a smaller batch or a smaller "
          "queue%s",
          (double)need / 1e6, h->most_host || h->most_device ? ", or raise max_host_bytes and max_device_bytes" : "");
  pthread_mutex_unlock(&h->lock); // of whoever logs
  refuse(h, s, i, MASKRCNN_NO_MEMORY, in, &err);
  pthread_mutex_lock(&h->lock);
}

static void count(maskrcnn *h, Submission *s, int image) {
  results_count(s->results, image);
  s->done++;
  pthread_cond_broadcast(&h->change);
}

// Those that can be used are given slots.
static maskrcnn_status slot(maskrcnn *h, Submission *s, const Incoming *list, int first, int n, maskrcnn_error *error) {
  for (int i = first; i < first + n; i++) {
    const Incoming *in = &list[i];
    s->staged++;
    if (in->refused) {
      count(h, s, i);
      continue;
    }
    StagedBatch *b = staging_forming(&h->staging, in->canvas);
    const size_t need = (size_t)(b->batch.num_bytes + 3 * (int64_t)in->size.h * in->size.w);
    if (make_room(h, b, need)) {
      staging_append(b, (StageSlot){.owner = s, .image = i, .h = in->h, .w = in->w, .from = in}, &in->size);
      h->waiting++;
      continue;
    }
    if (!b->batch.used) staging_release(b);
    if (handle_alive(h, error)) return MASKRCNN_DEAD;
    no_room(h, s, i, in, need);
    count(h, s, i);
  }
  return MASKRCNN_OK;
}

// ---- pixels ---------------------------------------------------------------------------------------------------------

// Threads that copy a batch, at most, and the bytes that one of them is worth: a core copies 5 GB/s, a photograph of 24
// megapixels in 14 ms. Decoding is 50 times as much work.
enum { COPIERS = 4, WORTH_A_COPIER = 8 << 20, DECODING = 50 };

typedef struct Copying {
  maskrcnn *h;
  const StagedBatch *b; // nobody else touches it: it is filling
  Submission *s;
  int bands;                // of rows that an image is copied in
  pthread_mutex_t refusing; // one at a time
} Copying;

static bool copies(const Copying *c, const StageSlot *p) { return p->owner == c->s && p->from; }

static void copy_band(void *copying, int i, int thread) {
  (void)thread;
  Copying *c = copying;
  const int k = i / c->bands, band = i % c->bands;
  const StageSlot *p = &c->b->slot[k];
  if (!copies(c, p)) return;
  Err err;
  maskrcnn_status status;
  const Incoming *in = p->from;
  const ImageInfo *info = &c->b->batch.info[k];
  uint8_t *rgb = c->b->batch.bytes + info->offset;
  const int bands = pixels_bands(in, c->bands);
  if (band >= bands || pixels_copy(c->h, in, rgb, band, bands, &status, &err)) return;
  pthread_mutex_lock(&c->refusing);
  refuse(c->h, c->s, p->image, status, in, &err);
  pthread_mutex_unlock(&c->refusing);
  if (bands == 1) memset(rgb, 0, 3 * (size_t)info->h * (size_t)info->w); // it is computed, and dropped
}

static void copy_batch(Copying *c) {
  size_t bytes = 0;
  for (int k = 0; k < c->b->batch.used; k++) {
    const StageSlot *p = &c->b->slot[k];
    const Incoming *in = p->from;
    if (copies(c, p))
      bytes += 3 * (size_t)in->w * (size_t)in->h * (in->image.format == MASKRCNN_ENCODED ? DECODING : 1);
  }
  const int worth = (int)MIN(bytes / WORTH_A_COPIER, (size_t)MIN(COPIERS, c->h->opened.copiers));
  c->bands = worth > 1 ? parallel_threads(worth) : 1;
  parallel_for(c->b->batch.used * c->bands, c->bands, copy_band, c);
}

static void forget_sources(StagedBatch *b) {
  for (int k = 0; k < b->batch.used; k++) b->slot[k].from = NULL;
  b->filling = false;
}

// Whether it takes no longer than waking up: pixels for a GPU.
static bool is_quick(const maskrcnn *h, const Incoming *list, int n) {
  bool quick = h->opened.gpu;
  for (int i = 0; i < n; i++) quick = quick && list[i].image.format != MASKRCNN_ENCODED;
  return quick;
}

// Batch by batch, each of which may run when it is copied. With both locks, of which the inner one is open meanwhile.
static void copy(maskrcnn *h, Submission *s, bool quick) {
  StagedBatch *b;
  h->copying = quick;
  handle_ask(h); // the thread is awake when they are there
  while ((b = staging_filling(&h->staging))) {
    pthread_mutex_unlock(&h->lock);
    Copying c = {.h = h, .b = b, .s = s, .refusing = PTHREAD_MUTEX_INITIALIZER};
    copy_batch(&c);
    pthread_mutex_lock(&h->lock);
    forget_sources(b);
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
static maskrcnn_status reserve(maskrcnn *h, Submission *s, const Incoming *list, int first, int n,
                               maskrcnn_error *error) {
  int usable = 0;
  maskrcnn_status status = handle_alive(h, error);
  if (status) return status;
  for (int i = first; i < first + n; i++) usable += !list[i].refused;
  if (h->waiting + usable > h->opened.about.queue) return MASKRCNN_FULL;
  status = slot(h, s, list, first, n, error);
  if (!status && s->in_order) append(h, s);
  return status;
}

maskrcnn_status submit_stage(maskrcnn *h, Submission *s, const Incoming *list, int first, int n,
                             maskrcnn_error *error) {
  pthread_mutex_lock(&h->submitting);
  pthread_mutex_lock(&h->lock);
  const maskrcnn_status status = reserve(h, s, list, first, n, error);
  if (status == MASKRCNN_OK) copy(h, s, is_quick(h, list + first, n));
  if (!n) pthread_cond_broadcast(&h->change); // an empty submission is done
  pthread_mutex_unlock(&h->lock);
  pthread_mutex_unlock(&h->submitting);
  return status;
}
