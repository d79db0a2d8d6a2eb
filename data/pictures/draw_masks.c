#include "data/pictures/draw_masks.h"
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

static const float FILL = 0.4f; // opacity
enum {
  BAND = 128,      // rows that a thread draws at a time
  CHUNK = 64,      // pixels of a row that are looked at together
  MOST_REACH = 120 // so that sums of two squares fit into 16 bits
};

// A mask's part of some rows, and what surrounds it.
typedef struct Part {
  PixelRect rect;    // of the image
  int w;             // its columns
  uint8_t *mask;     // [rows, w] 1 inside
  uint8_t *distance; // [rows, w] to the nearest pixel of the column that is outside, at most reach + 1
  uint8_t *around;   // [w + 2] of a row: whether the mask has a pixel above, here or below; 0 at both ends
  uint16_t *square;  // [w + 2 reach] of a row: squared distances, with reach pixels on both sides
  int reach;         // of the outline, in pixels
} Part;

// Pixels beyond the image do not count as outside, so that no outline runs along the image's edge.
static void measure_columns(const Part *p) {
  const int h = p->rect.y2 - p->rect.y1, far = p->reach + 1;
  for (int y = 0; y < h; y++) {
    const uint8_t *mask = p->mask + (size_t)y * (size_t)p->w;
    uint8_t *to = p->distance + (size_t)y * (size_t)p->w;
    const uint8_t *above = y ? to - p->w : NULL;
    for (int x = 0; x < p->w; x++) {
      const int d = above ? MIN(above[x] + 1, far) : far;
      to[x] = mask[x] ? (uint8_t)d : 0;
    }
  }
  for (int y = h - 2; y >= 0; y--) {
    uint8_t *to = p->distance + (size_t)y * (size_t)p->w;
    const uint8_t *below = to + p->w;
    for (int x = 0; x < p->w; x++) to[x] = MIN(to[x], (uint8_t)(below[x] + 1));
  }
}

// The fraction of a pixel's neighbourhood that the mask covers, with weights 1 2 1 along both axes: pixels just outside
// take their share of the line, which smooths it.
static float outline_outside(const Part *p, int y, int x) {
  float sum = 0;
  const int h = p->rect.y2 - p->rect.y1;
  for (int dy = -1; dy <= 1; dy++)
    for (int dx = -1; dx <= 1; dx++) {
      const int py = MIN(MAX(y + dy, 0), h - 1), px = MIN(MAX(x + dx, 0), p->w - 1);
      if (p->mask[(size_t)py * (size_t)p->w + (size_t)px]) sum += (dx ? 0.25f : 0.5f) * (dy ? 0.25f : 0.5f);
    }
  return sum;
}

static void look_around(const Part *p, int y) {
  const uint8_t *here = p->mask + (size_t)y * (size_t)p->w;
  const uint8_t *above = p->rect.y1 + y > p->rect.y1 ? here - p->w : here;
  const uint8_t *below = p->rect.y1 + y + 1 < p->rect.y2 ? here + p->w : here;
  for (int x = 0; x < p->w; x++) p->around[x + 1] = above[x] | here[x] | below[x];
}

// What there is of the mask and its outline in pixels [from, from + n) of a row.
typedef struct Stretch {
  bool around;  // a pixel of the mask, or beside one
  bool outline; // a pixel outside within reach
} Stretch;
static Stretch look_at(const Part *p, int from, int n) {
  unsigned around = 0, least = UINT16_MAX;
  for (int x = from; x < from + n + 2; x++) around |= p->around[x];
  for (int x = from; x < from + n + 2 * p->reach; x++) least = MIN(least, p->square[x]);
  return (Stretch){around, least <= (unsigned)(p->reach * p->reach)};
}

// The squared distance of n pixels to the nearest pixel outside, if that is within reach.
static void measure_chunk(const Part *p, int from, int n, uint16_t nearest[CHUNK]) {
  const uint16_t *here = p->square + p->reach + from;
  for (int x = 0; x < n; x++) nearest[x] = here[x];
  for (int step = 1; step <= p->reach; step++) {
    const uint16_t *left = here - step, *right = here + step, add = (uint16_t)(step * step);
    for (int x = 0; x < n; x++) {
      const uint16_t side = (uint16_t)(MIN(left[x], right[x]) + add);
      nearest[x] = MIN(nearest[x], side);
    }
  }
}

// Row y of the part. fill: [3][256], a filled pixel's channels by what they were. The outline fades with the distance
// to the nearest pixel outside.
static void draw_row(Image *im, const Part *p, int y, Colour c, uint8_t fill[3][256], float line) {
  const uint8_t *mask = p->mask + (size_t)y * (size_t)p->w, *distance = p->distance + (size_t)y * (size_t)p->w;
  uint8_t *row = im->rgb + 3 * ((size_t)(p->rect.y1 + y) * (size_t)im->w + (size_t)p->rect.x1);
  look_around(p, y);
  for (int x = 0; x < p->w; x++) p->square[p->reach + x] = (uint16_t)(distance[x] * distance[x]);
  for (int from = 0; from < p->w; from += CHUNK) {
    const int n = MIN(CHUNK, p->w - from);
    const Stretch chunk = look_at(p, from, n);
    uint16_t nearest[CHUNK];
    if (!chunk.around) continue;
    if (chunk.outline) measure_chunk(p, from, n, nearest);
    for (int x = from; x < from + n; x++) {
      uint8_t *pixel = row + 3 * (size_t)x;
      float edge = 0;
      if (mask[x]) {
        for (int k = 0; k < 3; k++) pixel[k] = fill[k][pixel[k]];
        if (chunk.outline) edge = fminf(line + 1 - sqrtf((float)nearest[x - from]), 1);
      } else if (p->around[x] | p->around[x + 1] | p->around[x + 2]) {
        edge = outline_outside(p, y, x);
      }
      if (edge > 0) image_blend(im, p->rect.y1 + y, p->rect.x1 + x, c, edge);
    }
  }
}

static int reach_of(const DrawMask *m) { return MIN((int)ceilf(m->line), MOST_REACH); }

// Rows [from, to) of a mask, whose extent is known.
static void draw_rows(Image *im, const DrawMask *m, PixelRect extent, int from, int to, Part *p) {
  uint8_t fill[3][256];
  const uint8_t rgb[3] = {m->colour.r, m->colour.g, m->colour.b};
  p->reach = reach_of(m);
  const PixelRect context = {0, from - p->reach - 1, im->w, to + p->reach + 1}, image = {0, 0, im->w, im->h};
  p->rect = (PixelRect){extent.x1 - 1, extent.y1 - 1, extent.x2 + 1, extent.y2 + 1};
  p->rect = rect_common(rect_common(p->rect, image), context);
  if (rect_empty(p->rect)) return;
  p->w = p->rect.x2 - p->rect.x1;
  p->around[0] = p->around[p->w + 1] = 0;
  for (int x = 0; x < p->reach; x++) p->square[x] = p->square[p->reach + p->w + x] = UINT16_MAX / 2;
  spans_bytes(&m->spans, p->rect, p->mask);
  measure_columns(p);
  for (int k = 0; k < 3; k++)
    for (int v = 0; v < 256; v++) fill[k][v] = (uint8_t)((float)v + FILL * ((float)rgb[k] - (float)v) + 0.5f);
  for (int y = MAX(from, p->rect.y1); y < MIN(to, p->rect.y2); y++)
    draw_row(im, p, y - p->rect.y1, m->colour, fill, m->line);
}

size_t draw_masks_bytes(const Image *im) {
  const size_t rows = (size_t)MIN(BAND + 2 * (MOST_REACH + 1), im->h), w = (size_t)im->w;
  return (size_t)omp_get_max_threads() * (2 * rows * w + 3 * (w + 2 * MOST_REACH));
}

void draw_masks(Image *im, const DrawMask *masks, int n) {
  int reach = 0;
  for (int i = 0; i < n; i++) reach = MAX(reach, reach_of(&masks[i]));
  const int rows = BAND + 2 * (reach + 1);
  const size_t pixels = (size_t)MIN(rows, im->h) * (size_t)im->w;
  PixelRect *extent = xmalloc((size_t)n * sizeof *extent);
  for (int i = 0; i < n; i++) extent[i] = spans_extent(&masks[i].spans);
#pragma omp parallel for schedule(dynamic)
  for (int from = 0; from < im->h; from += BAND) {
    Part p = {0};
    const int to = MIN(from + BAND, im->h);
    p.mask = xmalloc(2 * pixels + (size_t)im->w + 2);
    p.square = xmalloc(((size_t)im->w + 2 * (size_t)reach) * sizeof *p.square);
    p.distance = p.mask + pixels;
    p.around = p.distance + pixels;
    for (int i = 0; i < n; i++)
      if (masks[i].spans.n && extent[i].y1 <= to && extent[i].y2 >= from)
        draw_rows(im, &masks[i], extent[i], from, to, &p);
    free(p.mask);
    free(p.square);
  }
  free(extent);
}
