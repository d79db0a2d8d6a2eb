#include "data/pictures/cover.h"
#include <stdlib.h>
#include "base/alloc.h"

Cover cover_open(int h, int w, int cell) {
  Cover c = {.cell = cell, .h = (h + cell - 1) / cell, .w = (w + cell - 1) / cell};
  c.sum = xcalloc((size_t)(c.h + 1) * (size_t)(c.w + 1), sizeof *c.sum);
  return c;
}

void cover_close(Cover *c) {
  free(c->sum);
  *c = (Cover){0};
}

static double *at(const Cover *c, int y, int x) { return &c->sum[(size_t)y * (size_t)(c->w + 1) + (size_t)x]; }

static void add_mask(Cover *c, const Spans *mask) {
  const PixelRect all = spans_extent(mask);
  const double share = 1.0 / (double)spans_area(mask, all);
  for (int i = 0; i < mask->n; i++) {
    const Span s = mask->items[i];
    for (int y = s.y, next; y < s.end; y = next) {
      next = MIN((y / c->cell + 1) * c->cell, s.end);
      *at(c, y / c->cell + 1, s.x / c->cell + 1) += share * (next - y);
    }
  }
}

static void add_box(Cover *c, Rect box) {
  const float side = (float)c->cell, area = rect_area(box);
  for (int y = (int)(box.y1 / side); y < c->h && (float)y * side < box.y2; y++)
    for (int x = (int)(box.x1 / side); x < c->w && (float)x * side < box.x2; x++) {
      const Rect cell = {(float)x * side, (float)y * side, (float)(x + 1) * side, (float)(y + 1) * side};
      *at(c, y + 1, x + 1) += rect_overlap(cell, box) / area;
    }
}

void cover_add(Cover *c, const Spans *mask, Rect box) {
  if (mask && mask->n)
    add_mask(c, mask);
  else if (rect_area(box) > 0)
    add_box(c, box);
}

void cover_end(Cover *c) {
  for (int y = 1; y <= c->h; y++)
    for (int x = 1; x <= c->w; x++) *at(c, y, x) += *at(c, y - 1, x) + *at(c, y, x - 1) - *at(c, y - 1, x - 1);
}

// Sum of everything above and left of a point; within a cell it is taken as even.
static double before(const Cover *c, float y, float x) {
  const float fy = fminf(fmaxf(y / (float)c->cell, 0), (float)c->h),
              fx = fminf(fmaxf(x / (float)c->cell, 0), (float)c->w);
  const int iy = MIN((int)fy, c->h - 1), ix = MIN((int)fx, c->w - 1);
  const double ty = (double)fy - iy, tx = (double)fx - ix;
  return (1 - ty) * ((1 - tx) * *at(c, iy, ix) + tx * *at(c, iy, ix + 1)) +
         ty * ((1 - tx) * *at(c, iy + 1, ix) + tx * *at(c, iy + 1, ix + 1));
}

double cover_in(const Cover *c, Rect r) {
  return before(c, r.y2, r.x2) - before(c, r.y1, r.x2) - before(c, r.y2, r.x1) + before(c, r.y1, r.x1);
}
