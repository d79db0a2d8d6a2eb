#include "data/pictures/draw.h"
#include <math.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "data/pictures/draw_labels.h"
#include "data/pictures/draw_masks.h"

const char *const draw_colours[] = {"class", "instance", NULL};

// Sixteen vivid colours, as distinguishable as possible with the common types of colour blindness, neighbours in the
// list most of all.
static const Colour palette[] = {{255, 89, 94},  {25, 130, 196}, {255, 202, 58},  {138, 201, 38},
                                 {155, 93, 229}, {255, 146, 76}, {0, 187, 249},   {241, 91, 181},
                                 {0, 175, 145},  {198, 120, 70}, {104, 109, 224}, {220, 230, 80},
                                 {230, 60, 140}, {60, 220, 130}, {150, 200, 240}, {215, 160, 220}};

// After all colours come their lighter, then their darker shades.
static Colour colour_of(int number) {
  static const float shades[] = {0, 0.45f, -0.35f, 0.7f, -0.6f}; // share of white, or of black
  const unsigned n = (unsigned)number;
  const Colour c = palette[n % COUNT(palette)];
  const float shade = shades[n / COUNT(palette) % COUNT(shades)], keep = 1 - fabsf(shade), add = fmaxf(shade, 0) * 255;
  return (Colour){(uint8_t)(c.r * keep + add), (uint8_t)(c.g * keep + add), (uint8_t)(c.b * keep + add)};
}

// The box clipped to the image; NaN becomes 0.
static Rect item_box(const Image *im, const DrawItem *d) {
  const float w = (float)im->w, h = (float)im->h;
  Rect r = {d->x1 > 0 ? fminf(d->x1, w) : 0, d->y1 > 0 ? fminf(d->y1, h) : 0, d->x2, d->y2};
  r.x2 = r.x2 > r.x1 ? fminf(r.x2, w) : r.x1;
  r.y2 = r.y2 > r.y1 ? fminf(r.y2, h) : r.y1;
  return r;
}

// The outline runs inside the box, whose edges are aligned to pixels: a line between two pixels would be blurred.
static void draw_box(Image *im, Rect r, Colour c, float line) {
  r = (Rect){roundf(r.x1), roundf(r.y1), roundf(r.x2), roundf(r.y2)};
  float radius = fminf(2 * line, fminf(r.x2 - r.x1, r.y2 - r.y1) / 2);
  int margin = (int)ceilf(line + radius);
  for (int y = (int)r.y1; y < (int)r.y2; y++) {
    bool crossing = y >= (int)r.y1 + margin && y < (int)r.y2 - margin; // only the two vertical sides cross these rows
    for (int x = (int)r.x1; x < (int)r.x2; x++) {
      if (crossing && x == (int)r.x1 + margin) x = MAX(x, (int)r.x2 - margin);
      float d = rect_distance(r, radius, x, y);
      image_blend(im, y, x, c, 0.9f * fminf(fmaxf(0.5f - d, 0), 1) * fminf(fmaxf(d + line + 0.5f, 0), 1));
    }
  }
}

static bool is_filled(const DrawItem *d, Rect box) { return d->mask && 2 * (float)rle_area(d->mask) >= rect_area(box); }

// Small objects have thinner lines, which hide at most about a quarter of them.
static float line_of(float area, float line) { return fmaxf(fminf(line, sqrtf(area) / 16), 1); }

typedef struct ItemOrder {
  int item;
  float area;
} ItemOrder;

// Large ones first, ties by index in the list.
static int by_area(const void *a, const void *b) {
  const ItemOrder *p = a, *q = b;
  if (p->area != q->area) return p->area < q->area ? 1 : -1;
  return p->item - q->item;
}

void draw_overlay(Image *im, const DrawItem *items, int n) {
  const float size = label_size(im, n), line = fmaxf((float)MIN(im->h, im->w) / 360, 1);
  ItemOrder *order = xmalloc((size_t)n * sizeof *order);
  DrawMask *masks = xcalloc((size_t)n, sizeof *masks);
  LabelledObject *objects = xmalloc((size_t)n * sizeof *objects);
  for (int i = 0; i < n; i++) {
    const Rect box = item_box(im, &items[i]);
    order[i] = (ItemOrder){i, rect_area(box)};
  }
  qsort(order, (size_t)n, sizeof *order, by_area);
  for (int i = 0; i < n; i++) {
    const DrawItem *d = &items[order[i].item];
    masks[i].colour = colour_of(d->colour);
    masks[i].line = line_of(d->mask ? (float)rle_area(d->mask) : 0, 1.5f * line);
    if (d->mask && d->mask->h == im->h && d->mask->w == im->w) masks[i].spans = spans_of(d->mask, 0, 0);
    objects[order[i].item] = (LabelledObject){.box = item_box(im, d),
                                              .mask = &masks[i].spans,
                                              .name = d->label,
                                              .score = d->score,
                                              .colour = masks[i].colour};
  }
  draw_masks(im, masks, n);
  for (int i = 0; i < n; i++) {
    const int k = order[i].item;
    if (!is_filled(&items[k], objects[k].box))
      draw_box(im, objects[k].box, objects[k].colour, line_of(rect_area(objects[k].box), line));
  }
  draw_labels(im, objects, n, size, line);
  for (int i = 0; i < n; i++) spans_free(&masks[i].spans);
  free(objects);
  free(masks);
  free(order);
}
