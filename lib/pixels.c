#include "lib/pixels.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/contained.h"
#include "data/images/image.h"
#include "data/images/shrink.h"

int pixels_bands(const Incoming *in, int bands) {
  return in->image.format == MASKRCNN_ENCODED || in->image.place == MASKRCNN_GPU ? 1 : bands;
}

// ---- formats --------------------------------------------------------------------------------------------------------

static void from_rgb(uint8_t *to, const void *from, int w, SampleRange range) {
  (void)range;
  memcpy(to, from, 3 * (size_t)w);
}

static void from_bgr(uint8_t *to, const void *from, int w, SampleRange range) {
  const uint8_t *p = from;
  (void)range;
  for (int x = 0; x < w; x++, to += 3, p += 3) {
    to[0] = p[2];
    to[1] = p[1];
    to[2] = p[0];
  }
}

static void from_rgba(uint8_t *to, const void *from, int w, SampleRange range) {
  const uint8_t *p = from;
  (void)range;
  for (int x = 0; x < w; x++, to += 3, p += 4) {
    to[0] = p[0];
    to[1] = p[1];
    to[2] = p[2];
  }
}

static void from_grey(uint8_t *to, const void *from, int w, SampleRange range) {
  const uint8_t *p = from;
  (void)range;
  for (int x = 0; x < w; x++, to += 3) to[0] = to[1] = to[2] = p[x];
}

static void from_grey16(uint8_t *to, const void *from, int w, SampleRange range) {
  const uint16_t *p = from;
  for (int x = 0; x < w; x++, to += 3) to[0] = to[1] = to[2] = sample_range_byte(range, p[x]);
}

static void (*const convert[])(uint8_t *to, const void *from, int w, SampleRange range) = {
    [MASKRCNN_RGB] = from_rgb,   [MASKRCNN_BGR] = from_bgr,       [MASKRCNN_RGBA] = from_rgba,
    [MASKRCNN_GREY] = from_grey, [MASKRCNN_GREY16] = from_grey16,
};

static bool no_memory(size_t bytes, maskrcnn_status *status, Err *err) {
  *status = MASKRCNN_NO_MEMORY;
  return err_memory(err, bytes, "the pixels of an image", NULL);
}

// Of pixels in the host's memory.
static bool copy_rows(const Incoming *in, const uint8_t *data, int64_t pitch, uint8_t *to, int band, int bands,
                      maskrcnn_status *status, Err *err) {
  const int by = in->by, h = in->h / by, w = in->w / by;
  const int begin = (int)((int64_t)h * band / bands), end = (int)((int64_t)h * (band + 1) / bands);
  const size_t row = 3 * (size_t)in->w, need = by > 1 ? row * (size_t)by : 0;
  uint8_t *rows = need ? malloc(need) : NULL; // those that become one
  if (need && !rows) return no_memory(need, status, err);
  to += 3 * (int64_t)w * begin;
  for (int y = begin; y < end; y++, to += 3 * (size_t)w)
    for (int k = 0; k < by; k++) {
      convert[in->image.format](by > 1 ? rows + row * (size_t)k : to, data + pitch * ((int64_t)y * by + k), in->w,
                                in->range);
      if (by > 1 && k == by - 1) shrink(rows, by, in->w, by, to);
    }
  free(rows);
  return true;
}

// ---- files and the GPU ----------------------------------------------------------------------------------------------

static bool decode(const Incoming *in, uint8_t *rgb, Err *err) {
  Scratch scratch = {0};
  const bool ok = image_decode_into(rgb, in->orientation, in->range, in->image.data, in->image.bytes, &scratch,
                                    "the file in memory", err);
  scratch_free(&scratch);
  return ok;
}

// In the handle's thread, which alone knows the GPU.
static bool fetch(maskrcnn *h, const Incoming *in, uint8_t *to, maskrcnn_status *status, Err *err) {
  Fetch f = {.to = to,
             .from = in->image.data,
             .row = (size_t)in->w * (size_t)format_bytes(in->image.format),
             .rows = (size_t)in->h,
             .pitch = (size_t)in->image.pitch,
             .err = err};
  pthread_mutex_lock(&h->lock);
  while (h->fetch && h->state == MASKRCNN_OK) pthread_cond_wait(&h->change, &h->lock);
  if (h->state == MASKRCNN_OK) h->fetch = &f;
  handle_ask(h);
  while (!f.done && h->state == MASKRCNN_OK) pthread_cond_wait(&h->change, &h->lock);
  if (h->fetch == &f) h->fetch = NULL;
  pthread_mutex_unlock(&h->lock);
  *status = MASKRCNN_BAD_IMAGE;
  return f.done ? f.ok : err_set(err, "the handle is dead");
}

// An image that has to be whole before it is converted or scaled down.
static bool copy_whole(maskrcnn *h, const Incoming *in, uint8_t *rgb, maskrcnn_status *status, Err *err) {
  const bool encoded = in->image.format == MASKRCNN_ENCODED;
  const int bytes = encoded ? 3 : format_bytes(in->image.format);
  const size_t need = (size_t)in->w * (size_t)in->h * (size_t)bytes;
  if (encoded && in->by == 1) return decode(in, rgb, err);
  uint8_t *whole = malloc(need);
  if (!whole) return no_memory(need, status, err);
  bool ok = encoded ? decode(in, whole, err) : fetch(h, in, whole, status, err);
  if (ok && encoded)
    shrink(whole, in->h, in->w, in->by, rgb);
  else if (ok)
    ok = copy_rows(in, whole, (int64_t)bytes * in->w, rgb, 0, 1, status, err);
  free(whole);
  return ok;
}

typedef struct WholeCopy {
  maskrcnn *h;
  const Incoming *in;
  uint8_t *rgb;
  maskrcnn_status *status;
  Err *err;
  bool ok;
} WholeCopy;

static void copy_contained(void *context) {
  WholeCopy *c = context;
  c->ok = copy_whole(c->h, c->in, c->rgb, c->status, c->err);
}

bool pixels_copy(maskrcnn *h, const Incoming *in, uint8_t *rgb, int band, int bands, maskrcnn_status *status,
                 Err *err) {
  *status = MASKRCNN_BAD_IMAGE;
  if (in->image.format != MASKRCNN_ENCODED && in->image.place == MASKRCNN_HOST)
    return copy_rows(in, in->image.data, in->image.pitch, rgb, band, bands, status, err);
  if (band) return true;
  WholeCopy c = {.h = h, .in = in, .rgb = rgb, .status = status, .err = err};
  if (contained_call(copy_contained, &c, err)) {
    if (!c.ok && err_exit(err) == EXIT_RUN) *status = MASKRCNN_NO_MEMORY;
    return c.ok;
  }
  *status = MASKRCNN_NO_MEMORY; // the decoder ends by nothing else
  return false;
}
