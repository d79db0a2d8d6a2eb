#include "data/pictures/draw.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "data/pictures/font.h"

// Sixteen vivid colours, as distinguishable as possible with the common types of colour blindness, neighbours in the
// list most of all.
static const Colour palette[] = {{255, 89, 94},  {25, 130, 196}, {255, 202, 58},  {138, 201, 38},
                                 {155, 93, 229}, {255, 146, 76}, {0, 187, 249},   {241, 91, 181},
                                 {0, 175, 145},  {198, 120, 70}, {104, 109, 224}, {220, 230, 80},
                                 {230, 60, 140}, {60, 220, 130}, {150, 200, 240}, {215, 160, 220}};

static Colour item_colour(int i) { return palette[i % COUNT(palette)]; }

typedef struct Rect {
  float x1, y1, x2, y2;
} Rect;

// The box in pixels of the drawing, clipped to it; NaN becomes 0.
static Rect item_box(const Image *im, const DrawItem *d, float factor) {
  float w = (float)im->w, h = (float)im->h;
  Rect r = {d->x1 * factor, d->y1 * factor, d->x2 * factor, d->y2 * factor};
  r.x1 = r.x1 > 0 ? MIN(r.x1, w) : 0;
  r.y1 = r.y1 > 0 ? MIN(r.y1, h) : 0;
  r.x2 = r.x2 > r.x1 ? MIN(r.x2, w) : r.x1;
  r.y2 = r.y2 > r.y1 ? MIN(r.y2, h) : r.y1;
  return r;
}
static float area(Rect r) { return (r.x2 - r.x1) * (r.y2 - r.y1); }
static float luminance(Colour c) { return 0.299f * c.r + 0.587f * c.g + 0.114f * c.b; }
static float overlap(Rect a, Rect b) {
  float w = fminf(a.x2, b.x2) - fmaxf(a.x1, b.x1), h = fminf(a.y2, b.y2) - fmaxf(a.y1, b.y1);
  return w > 0 && h > 0 ? w * h : 0;
}

// A piecewise cubic kernel with two parameters: Mitchell and Netravali, "Reconstruction filters in computer graphics",
// 1988. Images are enlarged with Catmull-Rom; masks with a softer kernel that smooths staircases but keeps a single
// pixel above one half.
typedef struct Kernel {
  float b, c;
} Kernel;
static const Kernel catmull_rom = {0, 0.5f}, soft = {0.75f, 0};

// Weights of four neighbours for a point at t in [0, 1) after the second.
static void kernel_weights(Kernel k, float t, float weights[4]) {
  for (int i = 0; i < 4; i++) {
    float x = fabsf(t + 1 - (float)i), x2 = x * x, x3 = x2 * x;
    float near = (12 - 9 * k.b - 6 * k.c) * x3 + (-18 + 12 * k.b + 6 * k.c) * x2 + 6 - 2 * k.b;
    float far = (-k.b - 6 * k.c) * x3 + (6 * k.b + 30 * k.c) * x2 + (-12 * k.b - 48 * k.c) * x + 8 * k.b + 24 * k.c;
    weights[i] = (x < 1 ? near : far) / 6;
  }
}

// Enlarges bytes [h, w, c] by a whole factor, rows first, then columns. Caller frees.
static uint8_t *enlarge(const uint8_t *in, int h, int w, int c, int factor, Kernel kernel) {
  size_t row = (size_t)w * factor * c;
  float *wide = xmalloc((size_t)h * row * sizeof *wide);
  uint8_t *out = xmalloc((size_t)h * factor * row);
  float weights[4];
  for (int x = 0; x < w * factor; x++) {
    float at = ((float)x + 0.5f) / (float)factor - 0.5f, base = floorf(at);
    kernel_weights(kernel, at - base, weights);
    for (int y = 0; y < h; y++) {
      for (int k = 0; k < c; k++) {
        float sum = 0;
        for (int i = 0; i < 4; i++) {
          int from = MIN(MAX((int)base - 1 + i, 0), w - 1);
          sum += weights[i] * in[((size_t)y * w + from) * c + k];
        }
        wide[y * row + (size_t)x * c + k] = sum;
      }
    }
  }
  for (int y = 0; y < h * factor; y++) {
    float at = ((float)y + 0.5f) / (float)factor - 0.5f, base = floorf(at);
    kernel_weights(kernel, at - base, weights);
    for (size_t j = 0; j < row; j++) {
      float sum = 0;
      for (int i = 0; i < 4; i++) sum += weights[i] * wide[MIN(MAX((int)base - 1 + i, 0), h - 1) * row + j];
      out[y * row + j] = (uint8_t)(MIN(MAX(sum, 0), 255) + 0.5f);
    }
  }
  free(wide);
  return out;
}

// The mask at the size of the drawing: [im->h, im->w], 0 or 1. Caller frees.
static uint8_t *mask_pixels(const Rle *mask, int factor) {
  uint8_t *small = xmalloc((size_t)mask->h * mask->w);
  rle_to_bytes(mask, small);
  if (factor == 1) return small;
  for (size_t i = 0; i < (size_t)mask->h * mask->w; i++) small[i] = small[i] ? 255 : 0;
  uint8_t *large = enlarge(small, mask->h, mask->w, 1, factor, soft);
  for (size_t i = 0; i < (size_t)mask->h * mask->w * factor * factor; i++) large[i] = large[i] >= 128;
  free(small);
  return large;
}

// For every pixel of columns x0 … x1, rows y0 … y1 the distance to the nearest pixel of its column that is outside the
// mask, at most `far`; pixels beyond the image do not count, so that no outline runs along the image's edge.
static uint8_t *column_distances(const Image *im, const uint8_t *mask, int x0, int y0, int x1, int y1, int far) {
  int w = x1 - x0, h = y1 - y0;
  uint8_t *distance = xmalloc((size_t)h * w);
  for (int x = 0; x < w; x++) {
    int d = far;
    for (int y = 0; y < h; y++) {
      d = mask[(size_t)(y + y0) * im->w + x + x0] ? MIN(d + 1, far) : 0;
      distance[(size_t)y * w + x] = (uint8_t)d;
    }
    d = far;
    for (int y = h - 1; y >= 0; y--) {
      d = MIN(d + 1, distance[(size_t)y * w + x]);
      distance[(size_t)y * w + x] = (uint8_t)d;
    }
  }
  return distance;
}

// The fraction of a pixel's neighbourhood that the mask covers, with weights 1 2 1 along both axes.
static float mask_share(const Image *im, const uint8_t *mask, int y, int x) {
  float sum = 0;
  for (int dy = -1; dy <= 1; dy++) {
    for (int dx = -1; dx <= 1; dx++) {
      int py = MIN(MAX(y + dy, 0), im->h - 1), px = MIN(MAX(x + dx, 0), im->w - 1);
      if (mask[(size_t)py * im->w + px]) sum += (dx ? 0.25f : 0.5f) * (dy ? 0.25f : 0.5f);
    }
  }
  return sum;
}

// Fills the mask and draws its outline just inside the edge, so that touching instances keep separate outlines. The
// outline fades with the distance to the nearest pixel outside; pixels just outside get a fraction of it, for
// anti-aliasing.
static void draw_mask(Image *im, const uint8_t *mask, Rect box, Colour c, float line) {
  int x0 = MAX((int)box.x1 - 1, 0), x1 = MIN((int)box.x2 + 1, im->w);
  int y0 = MAX((int)box.y1 - 1, 0), y1 = MIN((int)box.y2 + 1, im->h), w = x1 - x0;
  int reach = MIN((int)ceilf(line), UINT8_MAX - 1);
  uint8_t *distances = column_distances(im, mask, x0, y0, x1, y1, reach + 1);
  for (int y = y0; y < y1; y++) {
    for (int x = x0; x < x1; x++) {
      float edge;
      if (mask[(size_t)y * im->w + x]) {
        int nearest = (reach + 1) * (reach + 1); // squared
        for (int nx = MAX(x - reach, x0); nx <= MIN(x + reach, x1 - 1); nx++) {
          int d = distances[(size_t)(y - y0) * w + nx - x0];
          nearest = MIN(nearest, d * d + (nx - x) * (nx - x));
        }
        edge = fminf(fmaxf(line + 1 - sqrtf((float)nearest), 0), 1);
        image_blend(im, y, x, c, 0.42f);
      } else {
        edge = mask_share(im, mask, y, x);
      }
      image_blend(im, y, x, c, edge);
    }
  }
  free(distances);
}

// Distance from a pixel's centre to the edge of a rectangle with round corners, negative inside.
static float rounded_distance(Rect r, float radius, int x, int y) {
  float dx = fabsf((float)x + 0.5f - (r.x1 + r.x2) / 2) - (r.x2 - r.x1) / 2 + radius;
  float dy = fabsf((float)y + 0.5f - (r.y1 + r.y2) / 2) - (r.y2 - r.y1) / 2 + radius;
  return hypotf(fmaxf(dx, 0), fmaxf(dy, 0)) + fminf(fmaxf(dx, dy), 0) - radius;
}

static void draw_plate(Image *im, Rect r, float radius, Colour c, float alpha) {
  for (int y = MAX((int)r.y1, 0); y < MIN((int)ceilf(r.y2), im->h); y++)
    for (int x = MAX((int)r.x1, 0); x < MIN((int)ceilf(r.x2), im->w); x++)
      image_blend(im, y, x, c, alpha * fminf(fmaxf(0.5f - rounded_distance(r, radius, x, y), 0), 1));
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
      float d = rounded_distance(r, radius, x, y);
      image_blend(im, y, x, c, 0.9f * fminf(fmaxf(0.5f - d, 0), 1) * fminf(fmaxf(d + line + 0.5f, 0), 1));
    }
  }
}

// What labels must not cover: the boxes of all items, and the labels drawn so far.
typedef struct Layout {
  Rect *boxes, *plates;
  int num_boxes, num_plates;
} Layout;

// How much of the objects a plate would hide: the sum of the fractions of boxes that it covers.
static float hidden_share(const Layout *l, Rect plate) {
  float sum = 0;
  for (int i = 0; i < l->num_boxes; i++) {
    Rect b = l->boxes[i];
    sum += overlap(plate, b) / fmaxf(area(b), 1);
  }
  return sum;
}

// Finds the position near the corners of a box, outside or inside, where a label of that size hides least and touches
// no other label. False: there is none, or it would hide too much.
static bool place_label(const Image *im, const Layout *l, Rect box, float w, float h, Rect *plate) {
  const float xs[] = {box.x1, box.x2 - w, (box.x1 + box.x2 - w) / 2}, ys[] = {box.y1 - h, box.y1, box.y2, box.y2 - h};
  float least = 0.6f;
  bool found = false;
  for (int i = 0; i < COUNT(xs) * COUNT(ys); i++) {
    float x = roundf(fminf(fmaxf(xs[i % COUNT(xs)], 0), (float)im->w - w)), y = roundf(ys[i / COUNT(xs)]);
    Rect at = {x, y, x + w, y + h};
    bool allowed = x >= 0 && y >= 0 && at.y2 <= (float)im->h;
    for (int k = 0; allowed && k < l->num_plates; k++) allowed = overlap(at, l->plates[k]) == 0;
    if (!allowed) continue;
    float hidden = hidden_share(l, at) + 0.01f * (float)i; // in a tie the first, above left
    if (hidden >= least) continue;
    least = hidden;
    *plate = at;
    found = true;
  }
  return found;
}

static void draw_label(Image *im, Layout *l, Rect box, const char *text, Colour c, float size) {
  float pad = roundf(size * 0.45f), h = roundf(size * 1.35f) + 2 * pad - 1;
  Rect plate;
  if (!place_label(im, l, box, ceilf(font_width(text, size)) + 2 * pad, h, &plate)) return;
  l->plates[l->num_plates++] = plate;
  Colour ink = luminance(c) > 140 ? (Colour){20, 20, 20} : (Colour){255, 255, 255};
  draw_plate(im, plate, size * 0.3f, c, 0.92f);
  font_draw(im, plate.x1 + pad, plate.y1 + pad + roundf(size), size, ink, text);
}

typedef struct ItemOrder {
  int item;
  float key;
} ItemOrder;

// Descending by key, ties by index in the list.
static int by_key(const void *a, const void *b) {
  const ItemOrder *p = a, *q = b;
  if (p->key != q->key) return p->key < q->key ? 1 : -1;
  return p->item - q->item;
}

// Enlarges the image so that its shorter side is about as large as labels need; returns the factor.
static int enlarge_small(Image *im) {
  enum { SHORTER_SIDE = 480, LONGER_SIDE = 4096 };
  int shorter = MIN(im->h, im->w), longer = MAX(im->h, im->w);
  int factor = MAX(MIN((SHORTER_SIDE + shorter / 2) / shorter, LONGER_SIDE / longer), 1);
  if (factor == 1) return factor;
  uint8_t *large = enlarge(im->rgb, im->h, im->w, 3, factor, catmull_rom);
  free(im->rgb);
  *im = (Image){im->h * factor, im->w * factor, large};
  return factor;
}

static void draw_item_mask(Image *im, const Rle *mask, int factor, Colour c, float line) {
  double xywh[4];
  rle_bbox(mask, xywh);
  float f = (float)factor, x = (float)xywh[0] * f, y = (float)xywh[1] * f;
  uint8_t *pixels = mask_pixels(mask, factor);
  draw_mask(im, pixels, (Rect){x, y, x + (float)xywh[2] * f, y + (float)xywh[3] * f}, c, line);
  free(pixels);
}

void draw_overlay(Image *im, const DrawItem *items, int n) {
  int factor = enlarge_small(im);
  float side = (float)MIN(im->h, im->w);
  float size = fminf(fmaxf(side / 48, 9), FONT_MAX), line = fmaxf(roundf(side / 360), 1);
  ItemOrder *order = xmalloc((size_t)n * sizeof *order);
  Layout l = {.boxes = xmalloc((size_t)n * sizeof(Rect)), .plates = xmalloc((size_t)n * sizeof(Rect)), .num_boxes = n};
  for (int i = 0; i < n; i++) {
    l.boxes[i] = item_box(im, &items[i], (float)factor);
    order[i] = (ItemOrder){i, area(l.boxes[i])};
  }
  qsort(order, (size_t)n, sizeof *order, by_key); // large ones first, so that small ones stay on top
  for (int i = 0; i < n; i++) {
    int k = order[i].item;
    if (items[k].mask) draw_item_mask(im, items[k].mask, factor, item_colour(k), 1.5f * line);
  }
  for (int i = 0; i < n; i++) draw_box(im, l.boxes[order[i].item], item_colour(order[i].item), line);
  for (int i = 0; i < n; i++) order[i] = (ItemOrder){i, items[i].score >= 0 ? items[i].score : -1};
  qsort(order, (size_t)n, sizeof *order, by_key);
  for (int i = 0; i < n; i++) {
    const DrawItem *d = &items[order[i].item];
    if (!d->label) continue;
    char score[16] = "", *text;
    if (d->score >= 0) snprintf(score, sizeof score, " %.2f", (double)d->score);
    text = xasprintf("%s%s", d->label, score);
    draw_label(im, &l, l.boxes[order[i].item], text, item_colour(order[i].item), size);
    free(text);
  }
  free(l.boxes);
  free(l.plates);
  free(order);
}
