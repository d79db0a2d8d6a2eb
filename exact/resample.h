// Pillow's antialiased bilinear resize (Resample.c): a triangle filter as wide as an output pixel, but at least as an
// input pixel, so that shrinking does not alias. Weights are fixed-point numbers that add up to one, computed in
// double; the horizontal pass comes first and rounds to bytes. The CPU and CUDA compile the same source: the same
// operations in the same order.
#pragma once
#include <stddef.h>
#include "base/basics.h"
#include "base/rng.h" // HD

enum { RESAMPLE_BITS = 22 }; // of a weight: 32, less 8 for the pixel and 2 to spare

typedef struct Resample { // of one output position: the input positions first … first + count - 1
  int first, count;
  double centre, inverse; // of the triangle, in input positions: its centre, one over half its width
  double total;           // sum of the weights before normalisation
} Resample;

// The filter at the k-th input position, not normalised.
static inline HD double resample_triangle(const Resample *r, int k) {
  double x = (k + r->first - r->centre + 0.5) * r->inverse;
  if (x < 0) x = -x;
  return x < 1 ? 1 - x : 0;
}

// Output position i of an axis resized from `from` to `to` positions.
static inline HD Resample resample_at(int i, int from, int to) {
  double scale = (double)from / to, support = scale > 1 ? scale : 1;
  Resample r;
  r.centre = (i + 0.5) * scale;
  r.inverse = 1 / support;
  r.first = MAX((int)(r.centre - support + 0.5), 0);
  r.count = MIN((int)(r.centre + support + 0.5), from) - r.first;
  r.total = 0;
  for (int k = 0; k < r.count; k++) r.total += resample_triangle(&r, k);
  return r;
}

// The fixed-point weight of the k-th input position.
static inline HD int resample_weight(const Resample *r, int k) {
  return (int)(0.5 + resample_triangle(r, k) / r->total * (1 << RESAMPLE_BITS));
}

// A fixed-point sum of weighted bytes, rounded to a byte.
static inline HD int resample_byte(int sum) { return MIN((sum + (1 << (RESAMPLE_BITS - 1))) >> RESAMPLE_BITS, 255); }

// The three channels of output pixel (y, x) of an image of rows of w pixels.
static inline HD void resample_pixel(const Resample *y, const Resample *x, const uint8_t *rgb, int w, int value[3]) {
  int down[3] = {0, 0, 0};
  for (int j = 0; j < y->count; j++) {
    const uint8_t *from = rgb + ((size_t)(y->first + j) * w + x->first) * 3;
    int across[3] = {0, 0, 0}, weight = resample_weight(y, j);
    for (int k = 0; k < x->count; k++)
      for (int c = 0; c < 3; c++) across[c] += resample_weight(x, k) * from[3 * k + c];
    for (int c = 0; c < 3; c++) down[c] += weight * resample_byte(across[c]);
  }
  for (int c = 0; c < 3; c++) value[c] = resample_byte(down[c]);
}
