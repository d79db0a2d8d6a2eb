#include "data/pictures/thumbnail.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/coco/spans.h"
#include "data/images/jpeg_write.h"
#include "data/pictures/draw.h"
#include "data/pictures/draw_name.h"

enum { QUALITY = 75 };

// Scales [h, w, 3] bytes down: each pixel is the mean of what it covers. Caller frees.
static uint8_t *shrink(const uint8_t *in, int h, int w, int out_h, int out_w) {
  uint8_t *out = xmalloc((size_t)3 * out_h * out_w);
  for (int y = 0; y < out_h; y++)
    for (int x = 0; x < out_w; x++) {
      int y0 = (int)((int64_t)y * h / out_h), y1 = (int)((int64_t)(y + 1) * h / out_h);
      int x0 = (int)((int64_t)x * w / out_w), x1 = (int)((int64_t)(x + 1) * w / out_w);
      for (int k = 0; k < 3; k++) {
        uint64_t sum = 0;
        for (int v = y0; v < y1; v++)
          for (int u = x0; u < x1; u++) sum += in[((size_t)v * w + u) * 3 + k];
        out[((size_t)y * out_w + x) * 3 + k] = (uint8_t)(sum / ((uint64_t)(y1 - y0) * (x1 - x0)));
      }
    }
  return out;
}

static void shrink_image(Image *im, int side) {
  const float scale = fminf(1, (float)side / (float)MAX(im->h, im->w));
  const int h = MAX((int)(scale * (float)im->h), 1), w = MAX((int)(scale * (float)im->w), 1);
  if (scale >= 1) return;
  uint8_t *small = shrink(im->rgb, im->h, im->w, h, w);
  image_free(im);
  *im = (Image){h, w, small};
}

// ---- pictures -------------------------------------------------------------------------------------------------------

bool thumbnail_open(Thumbnail *t, const Dataset *d, int i, int side, Err *err) {
  if (!dataset_image(d, i, &t->image, err)) return false;
  const float h = (float)t->image.h, w = (float)t->image.w;
  shrink_image(&t->image, side);
  t->sy = (float)t->image.h / h;
  t->sx = (float)t->image.w / w;
  return true;
}

void thumbnail_close(Thumbnail *t) { image_free(&t->image); }

// Draws the items over a copy of the thumbnail; frees them with their labels and masks.
static Jpeg draw(const Thumbnail *t, DrawItem *items, Rle *masks, int n) {
  Image im = image_alloc(t->image.h, t->image.w);
  Jpeg file;
  memcpy(im.rgb, t->image.rgb, 3 * (size_t)im.h * (size_t)im.w);
  draw_overlay(&im, items, n);
  file.bytes = jpeg_encode(&im, QUALITY, &file.size);
  for (int k = 0; k < n; k++) {
    rle_free(&masks[k]);
    free((char *)items[k].label);
  }
  free(masks);
  free(items);
  image_free(&im);
  return file;
}

Jpeg thumbnail_plain(const Thumbnail *t) { return draw(t, NULL, NULL, 0); }

// If everything has one category, its name would only hide objects: NULL.
static char *label_of(const Dataset *d, int category) {
  if (d->coco.num_categories < 2 || category < 0) return NULL;
  return draw_name(d->coco.categories[category].name, d->coco.categories[category].id);
}

Jpeg thumbnail_truth(const Thumbnail *t, const Dataset *d, int i) {
  const Object *object = d->object + d->first_object[i];
  const int n = d->first_object[i + 1] - d->first_object[i];
  DrawItem *items = xcalloc((size_t)n, sizeof *items);
  Rle *masks = xcalloc((size_t)n, sizeof *masks);
  for (int k = 0; k < n; k++) {
    const float *b = object[k].box;
    Rle mask = dataset_mask(d, i, &object[k]);
    masks[k] = rle_shrink(&mask, t->image.h, t->image.w);
    rle_free(&mask);
    items[k] = (DrawItem){.x1 = b[0] * t->sx,
                          .y1 = b[1] * t->sy,
                          .x2 = b[2] * t->sx,
                          .y2 = b[3] * t->sy,
                          .label = label_of(d, object[k].label - 1),
                          .score = -1,
                          .mask = &masks[k],
                          .colour = k};
  }
  return draw(t, items, masks, n);
}

Jpeg thumbnail_detections(const Thumbnail *t, const Dataset *d, const CocoResult *const *found, int n) {
  DrawItem *items = xcalloc((size_t)n, sizeof *items);
  Rle *masks = xcalloc((size_t)n, sizeof *masks);
  for (int k = 0; k < n; k++) {
    const double *b = found[k]->bbox;
    char *name = label_of(d, coco_find_category(&d->coco, found[k]->category_id));
    if (found[k]->has_segm) masks[k] = rle_shrink(&found[k]->rle, t->image.h, t->image.w);
    items[k] = (DrawItem){.x1 = (float)b[0] * t->sx,
                          .y1 = (float)b[1] * t->sy,
                          .x2 = (float)(b[0] + b[2]) * t->sx,
                          .y2 = (float)(b[1] + b[3]) * t->sy,
                          .label = name ? name : xstrdup(""),
                          .score = (float)found[k]->score,
                          .mask = found[k]->has_segm ? &masks[k] : NULL,
                          .colour = k};
  }
  return draw(t, items, masks, n);
}
