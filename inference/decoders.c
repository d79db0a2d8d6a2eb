#include "inference/decoders.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "inference/pixel_pool.h"

typedef enum SlotState { SLOT_FREE, SLOT_READING, SLOT_WAITS, SLOT_READY } SlotState;

struct Decoders {
  Sources *sources;
  DecodersOptions o;
  pthread_t *thread; // [threads]
  int threads;
  pthread_mutex_t lock; // guards everything below
  pthread_cond_t changed;
  bool stop;
  SlotState *state; // [o.ahead] image p is in slot p % o.ahead
  Decoded **slot;   // [o.ahead]
  int64_t named;    // number of number of images taken by the consumer that the sources have named
  int64_t admitted; // number of images that, in order, have got memory for pixels or need none
  int64_t taken;    // images
  bool naming;      // a thread is reading the sources
  bool idle;        // and waits for the next line of a list
  bool ended;       // no images are left
  bool failed;
  Err why;
  size_t bytes;   // of pixels that are not released
  PixelPool pool; // released pixel memory; together with `bytes` at most o.bytes
  int64_t read;   // number of images that threads have finished
  double busy;    // seconds spent on these, without waiting
};

// Seconds that a thread waits for a list before it checks whether it should stop.
static const double PATIENCE = 0.05;

// ---- threads ----------------------------------------------------------------------------------------------------

// Takes the next image: its slot, or NULL if there is none left for this thread. Called with the lock held, which it
// releases while it reads the sources.
static Decoded *take_name(Decoders *d) {
  while (!d->stop && !d->ended) {
    if (d->naming || d->named - d->taken >= d->o.ahead) {
      pthread_cond_wait(&d->changed, &d->lock);
      continue;
    }
    char *path = NULL;
    Err err;
    d->naming = true;
    const double wait = d->idle ? PATIENCE : 0;
    pthread_mutex_unlock(&d->lock);
    const SourceState state = sources_next(d->sources, wait, &path, &err);
    pthread_mutex_lock(&d->lock);
    d->naming = false;
    d->idle = state == SOURCE_WAITS;
    d->ended = state == SOURCE_ENDS || state == SOURCE_FAILS;
    d->failed = state == SOURCE_FAILS;
    if (d->failed) d->why = err;
    pthread_cond_broadcast(&d->changed);
    if (state != SOURCE_IMAGE) continue;
    Decoded *image = xcalloc(1, sizeof *image);
    image->number = d->named++;
    image->path = path;
    d->slot[image->number % d->o.ahead] = image;
    d->state[image->number % d->o.ahead] = SLOT_READING;
    return image;
  }
  return NULL;
}

// Waits for memory for pixels, which images get in order: so only earlier images hold memory, and these are always
// taken and released eventually. NULL if the thread should stop, no pixels are wanted, or memory runs out.
static uint8_t *admit(Decoders *d, Decoded *image, size_t bytes, double *waited) {
  const double begun = now_seconds();
  SlotState *state = &d->state[image->number % d->o.ahead];
  pthread_mutex_lock(&d->lock);
  while (!d->stop && (d->admitted < image->number || (d->bytes && d->bytes + bytes > d->o.bytes))) {
    *state = d->admitted == image->number ? SLOT_WAITS : SLOT_READING;
    if (*state == SLOT_WAITS) pthread_cond_broadcast(&d->changed);
    pthread_cond_wait(&d->changed, &d->lock);
  }
  *state = SLOT_READING;
  d->admitted++;
  uint8_t *rgb = bytes && !d->stop ? pixel_pool_take(&d->pool, bytes, &image->bytes) : NULL;
  d->bytes += image->bytes;
  pixel_pool_shrink(&d->pool, d->o.bytes - MIN(d->bytes, d->o.bytes));
  pthread_cond_broadcast(&d->changed);
  pthread_mutex_unlock(&d->lock);
  *waited = now_seconds() - begun;
  return rgb;
}

// "black" or "white" where samples have nearly all come out so: all but one in 500 in the lowest or highest sixteenth
// of the range. NULL elsewhere.
static const char *one_color(const Image *im) {
  enum { PART = 256 / 16, FEW = 500, TOGETHER = 4096 };
  const size_t size = 3 * (size_t)im->h * (size_t)im->w, few = size / FEW;
  size_t not_dark = 0, not_bright = 0;
  for (size_t i = 0; i < size && MIN(not_dark, not_bright) <= few;)
    for (const size_t end = MIN(i + TOGETHER, size); i < end; i++) {
      not_dark += im->rgb[i] >= PART;
      not_bright += im->rgb[i] < 256 - PART;
    }
  return not_dark <= few ? "black" : not_bright <= few ? "white" : NULL;
}

// Reads an image. In any case the image has been admitted when it returns; the time waited is added to `waited`.
static bool read_image(Decoders *d, Decoded *image, Scratch *scratch, double *waited, Err *err) {
  int h = 0, w = 0;
  size_t size = 0;
  const char *path = image->path;
  const uint8_t *file = scratch_read_file(scratch, path, &size, err);
  const bool measured = file && image_measure(file, size, path, &h, &w, err);
  const size_t bytes = 3 * (size_t)h * (size_t)w;
  uint8_t *rgb = admit(d, image, measured ? bytes : 0, waited);
  if (!measured) return false;
  image->orientation = image_orientation(file, size);
  const int orientation = d->o.upright ? image->orientation : 1;
  const bool turned = orientation >= IMAGE_TURNED;
  image->image = (Image){.h = turned ? w : h, .w = turned ? h : w, .rgb = rgb};
  if (rgb) {
    const bool ok = image_decode_into(rgb, orientation, d->o.range, file, size, scratch, path, err);
    image->color = ok && image_has_16_bits(file, size) ? one_color(&image->image) : NULL;
    return ok;
  }
  char what[512];
  snprintf(what, sizeof what, "the pixels of %s", path);
  return err_memory(err, bytes, what, NULL);
}

static void *decode(void *decoders) {
  Decoders *d = decoders;
  Scratch scratch = {0};
  Err err = {{0}};
  pthread_mutex_lock(&d->lock);
  for (Decoded *image; (image = take_name(d));) {
    pthread_mutex_unlock(&d->lock);
    scratch_reset(&scratch);
    double waited = 0;
    const double begun = now_seconds();
    if (!read_image(d, image, &scratch, &waited, &err)) {
      image->wrong = xmalloc(sizeof *image->wrong);
      *image->wrong = err;
      decoders_drop_pixels(d, image);
    }
    pthread_mutex_lock(&d->lock);
    d->read++;
    d->busy += now_seconds() - begun - waited;
    d->state[image->number % d->o.ahead] = SLOT_READY;
    pthread_cond_broadcast(&d->changed);
  }
  pthread_mutex_unlock(&d->lock);
  scratch_free(&scratch);
  return NULL;
}

// ---- the consumer -----------------------------------------------------------------------------------------

static DecodersState look(const Decoders *d) {
  if (d->taken == d->named) {
    if (d->failed) return DECODERS_FAIL;
    if (d->ended) return DECODERS_END;
    return d->idle ? DECODERS_IDLE : DECODERS_BUSY;
  }
  const SlotState state = d->state[d->taken % d->o.ahead];
  return state == SLOT_READY ? DECODERS_IMAGE : state == SLOT_WAITS ? DECODERS_FULL : DECODERS_BUSY;
}

DecodersState decoders_next(Decoders *d, double wait, Decoded **out, Err *err) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  const int64_t ns = until.tv_nsec + (int64_t)(1e9 * wait);
  until.tv_sec += (time_t)(ns / 1000000000);
  until.tv_nsec = (long)(ns % 1000000000);
  *out = NULL;
  pthread_mutex_lock(&d->lock);
  DecodersState state = look(d);
  const bool waits = wait > 0;
  while (waits && state != DECODERS_IMAGE && state != DECODERS_END && state != DECODERS_FAIL &&
         !pthread_cond_timedwait(&d->changed, &d->lock, &until))
    state = look(d);
  if (state == DECODERS_IMAGE) {
    *out = d->slot[d->taken % d->o.ahead];
    d->state[d->taken % d->o.ahead] = SLOT_FREE;
    d->taken++;
    pthread_cond_broadcast(&d->changed);
  }
  if (state == DECODERS_FAIL) *err = d->why;
  pthread_mutex_unlock(&d->lock);
  return state;
}

void decoders_drop_pixels(Decoders *d, Decoded *image) {
  pthread_mutex_lock(&d->lock);
  pixel_pool_give(&d->pool, image->image.rgb, image->bytes);
  d->bytes -= image->bytes;
  image->bytes = 0;
  image->image.rgb = NULL;
  pthread_cond_broadcast(&d->changed);
  pthread_mutex_unlock(&d->lock);
}

void decoders_free(Decoders *d, Decoded *image) {
  if (!image) return;
  decoders_drop_pixels(d, image);
  free(image->path);
  free(image->wrong);
  free(image);
}

double decoders_yield(Decoders *d) {
  pthread_mutex_lock(&d->lock);
  const double yield = d->read ? d->threads * (double)d->read / d->busy : 0;
  pthread_mutex_unlock(&d->lock);
  return yield;
}

// ---- opening ----------------------------------------------------------------------------------------------------

Decoders *decoders_open(Sources *s, const DecodersOptions *options, Err *err) {
  CHECK(options->threads >= 1 && options->ahead >= 1);
  Decoders *d = xcalloc(1, sizeof *d);
  d->sources = s;
  d->o = *options;
  d->thread = xcalloc((size_t)d->o.threads, sizeof *d->thread);
  d->state = xcalloc((size_t)d->o.ahead, sizeof *d->state);
  d->slot = xcalloc((size_t)d->o.ahead, sizeof *d->slot);
  pthread_mutex_init(&d->lock, NULL);
  pthread_cond_init(&d->changed, NULL);
  for (; d->threads < d->o.threads; d->threads++) {
    const int failed = pthread_create(&d->thread[d->threads], NULL, decode, d);
    if (!failed) continue;
    err_set(err,
            "cannot start decoder thread %d of %d: %s; raise the limit of processes (ulimit -u), free memory or reduce "
            "--threads",
            d->threads + 1, d->o.threads, strerror(failed));
    decoders_close(d);
    return NULL;
  }
  return d;
}

void decoders_close(Decoders *d) {
  if (!d) return;
  pthread_mutex_lock(&d->lock);
  d->stop = true;
  pthread_cond_broadcast(&d->changed);
  pthread_mutex_unlock(&d->lock);
  for (int i = 0; i < d->threads; i++) pthread_join(d->thread[i], NULL);
  for (; d->taken < d->named; d->taken++) decoders_free(d, d->slot[d->taken % d->o.ahead]);
  pixel_pool_shrink(&d->pool, 0);
  pthread_cond_destroy(&d->changed);
  pthread_mutex_destroy(&d->lock);
  free(d->thread);
  free(d->state);
  free(d->slot);
  free(d);
}
