// Pictures: an image with the detections of a result drawn over it, and PNG files of them.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/contained.h"
#include "data/images/png.h"
#include "data/pictures/draw.h"
#include "lib/pixels.h"
#include "lib/results.h"

// ---- drawing --------------------------------------------------------------------------------------------------------

typedef struct Drawing {
  Image image;
  const maskrcnn_detections *found;
  int n; // of those, they are drawn
} Drawing;

static void draw_all(void *context) {
  Drawing *d = context;
  const maskrcnn_detections *f = d->found;
  DrawItem *items = xcalloc((size_t)f->n, sizeof *items);
  Rle *masks = xcalloc((size_t)f->n, sizeof *masks);
  for (int i = 0; i < f->n; i++) {
    const maskrcnn_rle *m = f->masks[i];
    const float *b = f->boxes + 4 * i;
    masks[i] = (Rle){.h = m->height, .w = m->width, .n = m->num_counts, .runs = (uint32_t *)m->counts};
    items[i] = (DrawItem){.x1 = b[0],
                          .y1 = b[1],
                          .x2 = b[2],
                          .y2 = b[3],
                          .label = f->names[i],
                          .score = f->scores[i],
                          .mask = m->num_counts ? &masks[i] : NULL,
                          .colour = i};
  }
  draw_overlay(&d->image, items, f->n);
  free(items);
  free(masks);
}

// The image's pixels as a picture.
static maskrcnn_status read_picture(maskrcnn *h, const maskrcnn_image *image, maskrcnn_picture **picture,
                                    maskrcnn_error *error) {
  Err err;
  Incoming in;
  maskrcnn_status status = MASKRCNN_BAD_ARGUMENT;
  if (!incoming_readable(image, 1, &err)) return fail(error, status, "%s", err.msg);
  if (!incoming_measure(&in, &h->opened, image, 0, &err)) return fail(error, MASKRCNN_BAD_IMAGE, "%s", err.msg);
  if ((int64_t)in.h * in.w > h->opened.max_pixels)
    return fail(error, MASKRCNN_BAD_IMAGE, "it has %d x %d pixels, more than max_pixels (%lld)", in.w, in.h,
                (long long)h->opened.max_pixels);
  in.by = 1;
  const size_t bytes = 3 * (size_t)in.h * (size_t)in.w;
  maskrcnn_picture *p = malloc(sizeof *p + bytes);
  if (!p)
    return fail(error, MASKRCNN_NO_MEMORY, "out of memory: cannot allocate %.1f MB for a picture",
                1e-6 * (double)bytes);
  *p = (maskrcnn_picture){.width = in.w, .height = in.h, .rgb = (uint8_t *)(p + 1)};
  *picture = p;
  return pixels_copy(h, &in, p->rgb, 0, 1, &status, &err) ? MASKRCNN_OK : fail(error, status, "%s", err.msg);
}

static bool mask_fits(const maskrcnn_rle *m, const maskrcnn_picture *p) {
  uint64_t pixels = 0;
  for (size_t i = 0; m && i < (size_t)m->num_counts; i++) pixels += m->counts[i];
  return !m || !m->num_counts || pixels == (uint64_t)p->width * (uint64_t)p->height;
}

static maskrcnn_status draw_found(maskrcnn_picture *p, const maskrcnn_result *result, maskrcnn_error *error) {
  Err err;
  if (result->status)
    return fail(error, MASKRCNN_BAD_ARGUMENT, "the result's status is \"%s\": it has nothing to draw",
                maskrcnn_status_name(result->status));
  if (result->width != p->width || result->height != p->height)
    return fail(error, MASKRCNN_BAD_ARGUMENT, "the result is of an image of %d x %d pixels, but this one has %d x %d",
                result->width, result->height, p->width, p->height);
  for (int i = 0; result->detections && i < (int)result->detections->n; i++)
    if (!mask_fits(result->detections->masks[i], p))
      return fail(error, MASKRCNN_BAD_ARGUMENT, "the runs of mask %d do not add up to %d x %d pixels", i, p->width,
                  p->height);
  Drawing d = {.image = {.h = p->height, .w = p->width, .rgb = p->rgb}, .found = result->detections};
  if (!d.found || contained_call(draw_all, &d, &err)) return MASKRCNN_OK;
  return fail(error, MASKRCNN_NO_MEMORY, "%s", err.msg);
}

static maskrcnn_status draw(maskrcnn *h, const maskrcnn_image *image, const maskrcnn_result *result,
                            maskrcnn_picture **picture, maskrcnn_error *error) {
  maskrcnn_picture *p = NULL;
  if (picture) *picture = NULL;
  if (!picture || !image) return fail(error, MASKRCNN_BAD_ARGUMENT, "%s is NULL", picture ? "image" : "picture");
  maskrcnn_status status = handle_usable(h, error);
  if (!status) status = read_picture(h, image, &p, error);
  if (!status && result) status = draw_found(p, result, error);
  if (status)
    free(p);
  else
    *picture = p;
  return status;
}

maskrcnn_status maskrcnn_draw(maskrcnn *h, const maskrcnn_image *image, const maskrcnn_result *result,
                              maskrcnn_picture **picture, maskrcnn_error *error) {
  const Guard g = guard_enter(error);
  return guard_leave(&g, draw(h, image, result, picture, error));
}

void maskrcnn_picture_free(maskrcnn_picture *picture) { free(picture); }

// ---- files ----------------------------------------------------------------------------------------------------------

typedef struct Writing {
  const char *path;
  Image image;
  Err err;
  bool ok;
} Writing;

static void write_file(void *context) {
  Writing *w = context;
  w->ok = png_write(w->path, &w->image, PNG_SMALL, &w->err);
}

static maskrcnn_status write_png(const maskrcnn_picture *p, const char *path, maskrcnn_error *error) {
  Err err;
  if (!p || !path) return fail(error, MASKRCNN_BAD_ARGUMENT, "%s is NULL", p ? "path" : "picture");
  if (p->width < 1 || p->height < 1 || !p->rgb) return fail(error, MASKRCNN_BAD_ARGUMENT, "the picture has no pixels");
  Writing w = {.path = path, .image = {.h = p->height, .w = p->width, .rgb = p->rgb}};
  if (!contained_call(write_file, &w, &err)) return fail(error, MASKRCNN_NO_MEMORY, "%s", err.msg);
  return w.ok ? MASKRCNN_OK : fail(error, MASKRCNN_BAD_FILE, "%s", w.err.msg);
}

maskrcnn_status maskrcnn_write_png(const maskrcnn_picture *picture, const char *path, maskrcnn_error *error) {
  const Guard g = guard_enter(error);
  return guard_leave(&g, write_png(picture, path, error));
}
