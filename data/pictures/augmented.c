#include "data/pictures/augmented.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/images/jpeg_write.h"
#include "data/pictures/draw.h"
#include "data/pictures/draw_name.h"
#include "exact/view.h"

enum { QUALITY = 85, GREY = 128 };

// How the image is shown, as a map, also where training resizes and mirrors it without one.
static ImageView view_of(const ImageInfo *m) {
  ImageView v = m->view;
  const float across = (float)m->w / (float)m->rw, down = (float)m->h / (float)m->rh;
  const float plain[6] = {m->flip ? -across : across, 0, m->flip ? (float)m->w : 0, 0, down, 0};
  if (!v.moved) memcpy(v.map, plain, sizeof plain);
  return v;
}

// Grey beyond the image.
static Image draw_image(const ImageView *v, const ImageInfo *m, const uint8_t *rgb) {
  Image im = image_alloc(m->rh, m->rw);
  uint8_t *to = im.rgb;
  for (int y = 0; y < im.h; y++)
    for (int x = 0; x < im.w; x++) {
      float value[3];
      const float inside = view_pixel(v, rgb, m->h, m->w, y, x, true, value);
      if (v->coloured && inside > 0) view_colour(v, 3, value);
      for (int c = 0; c < 3; c++) *to++ = (uint8_t)(inside * value[c] + (1 - inside) * GREY + 0.5f);
    }
  return im;
}

// The bits of an object's mask that the canvas shows; polygons are not drawn.
static Rle draw_mask(const ImageView *v, const ImageInfo *m, const Bitmap *mask, const uint32_t *bits, uint8_t *shown) {
  const int pitch = (mask->w + 31) / 32;
  memset(shown, 0, (size_t)m->rh * m->rw);
  for (int i = 0; i < m->rh * m->rw; i++) {
    int row, column;
    if (!view_under(v, m->h, m->w, i / m->rw, i % m->rw, &row, &column)) continue;
    row -= mask->y;
    column -= mask->x;
    if (row < 0 || row >= mask->h || column < 0 || column >= mask->w) continue;
    shown[i] = bits[mask->offset + (int64_t)row * pitch + column / 32] >> (column % 32) & 1;
  }
  return rle_from_bytes(shown, m->rh, m->rw);
}

Jpeg augmented_picture(const Dataset *d, const Batch *b, int position) {
  const ImageInfo *m = &b->info[position];
  const ImageView v = view_of(m);
  const int n = d->type->mapped ? 0 : b->count[position];
  Image im = draw_image(&v, m, b->bytes + m->offset);
  DrawItem *items = xcalloc((size_t)n, sizeof *items);
  Rle *masks = xcalloc((size_t)n, sizeof *masks);
  uint8_t *shown = xmalloc((size_t)m->rh * m->rw);
  for (int k = 0; k < n; k++) {
    const int64_t row = (int64_t)position * b->capacity + k;
    const float *box = b->box + 4 * row;
    const CocoCategory *c = &d->coco.categories[b->label[row] - 1];
    const bool has_bits = b->bitmap[row].parts == 0;
    if (has_bits) masks[k] = draw_mask(&v, m, &b->bitmap[row], b->bits, shown);
    items[k] = (DrawItem){.x1 = box[0],
                          .y1 = box[1],
                          .x2 = box[2] + d->box_extra,
                          .y2 = box[3] + d->box_extra,
                          .label = d->coco.num_categories > 1 ? draw_name(c->name, c->id) : NULL,
                          .score = -1,
                          .mask = has_bits ? &masks[k] : NULL,
                          .colour = k};
  }
  draw_overlay(&im, items, n);
  Jpeg file;
  file.bytes = jpeg_encode(&im, QUALITY, &file.size);
  for (int k = 0; k < n; k++) {
    rle_free(&masks[k]);
    free((char *)items[k].label);
  }
  free(shown);
  free(masks);
  free(items);
  image_free(&im);
  return file;
}
