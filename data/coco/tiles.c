#include "data/coco/tiles.h"
#include <math.h>

// How many tiles cover `side` pixels: n of them reach over n · tile - (n - 1) · shared.
static int tiles_along(int side, int tile, int shared) {
  return side <= tile ? 1 : (side - shared + tile - shared - 1) / (tile - shared);
}

TilePlan tiles_plan(int h, int w, int tile, double overlap) {
  static const double ROUNDING = 1e-3; // pixels: a fraction such as 0.2 is inexact in floating point
  const int shared = (int)fmax(0, fmin(ceil(overlap * tile - ROUNDING), tile - 1));
  return (TilePlan){.h = h,
                    .w = w,
                    .tile_h = MIN(h, tile),
                    .tile_w = MIN(w, tile),
                    .rows = tiles_along(h, tile, shared),
                    .columns = tiles_along(w, tile, shared)};
}

int tiles_count(const TilePlan *p) { return p->rows * p->columns; }

// Begins are spread evenly and rounded down. Neighbours stay at most a tile minus the overlap apart, because that is an
// integer.
static int begin_of(int i, int n, int room) { return n == 1 ? 0 : (int)((int64_t)i * room / (n - 1)); }

PixelRect tiles_at(const TilePlan *p, int i) {
  const int x = begin_of(i % p->columns, p->columns, p->w - p->tile_w);
  const int y = begin_of(i / p->columns, p->rows, p->h - p->tile_h);
  return (PixelRect){x, y, x + p->tile_w, y + p->tile_h};
}
