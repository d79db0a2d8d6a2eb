// How an augmented image is shown on its canvas (ImageView): the image's value under a canvas pixel, the bit of a mask
// under it, and its colours. The CPU and CUDA compile the same source: the same operations in the same order.
#pragma once
#include <stdbool.h>
#include "base/basics.h"
#include "base/rng.h" // HD
#include "exact/affine.h"
#include "exact/tap.h"
#include "nn/ops.h"

// The place of point `at` between the pixels of an axis of so many, whose edge is repeated as by tap_resized.
static inline HD Tap view_tap(real at, int pixels) {
  at -= (real)0.5;
  at = at > 0 ? at : 0;
  Tap tap;
  tap.low = (int)at; // ≤ pixels - 1, since at < pixels
  tap.high = MIN(tap.low + 1, pixels - 1);
  tap.fraction = at - (real)tap.low;
  return tap;
}

// Canvas pixel (y, x) of rgb [h, w, 3]: the bilinear value, [0, 255], at its centre, or with `antialias` the mean at
// points spread evenly over it, about one for each pixel that it covers. Points outside the image do not count; returns
// the share of the others, and leaves the value 0 if there are none.
static inline HD real view_pixel(const ImageView *v, const uint8_t *rgb, int h, int w, int y, int x, bool antialias,
                                 real value[3]) {
  const real a = v->map[0], b = v->map[1], d = v->map[3], e = v->map[4];
  const int nx = antialias ? affine_samples(a, d) : 1, ny = antialias ? affine_samples(b, e) : 1;
  int inside = 0;
  for (int c = 0; c < 3; c++) value[c] = 0;
  for (int i = 0; i < ny; i++)
    for (int j = 0; j < nx; j++) {
      const real cx = (real)x + affine_share((real)j + (real)0.5, nx),
                 cy = (real)y + affine_share((real)i + (real)0.5, ny);
      const real at_x = a * cx + b * cy + v->map[2], at_y = d * cx + e * cy + v->map[5];
      if (!(at_x >= 0 && at_x < (real)w && at_y >= 0 && at_y < (real)h)) continue; // so that NaN is outside
      const Tap tx = view_tap(at_x, w), ty = view_tap(at_y, h);
      const uint8_t *above = rgb + (size_t)ty.low * w * 3, *below = rgb + (size_t)ty.high * w * 3;
      for (int c = 0; c < 3; c++) {
        const int left = tx.low * 3 + c, right = tx.high * 3 + c;
        value[c] += tap_blend(ty, tx, above[left], above[right], below[left], below[right]);
      }
      inside++;
    }
  if (inside == 0) return 0;
  for (int c = 0; c < 3; c++) value[c] = affine_share(value[c], inside);
  return affine_share((real)inside, nx * ny);
}

// The column and row of the image's pixel under the centre of canvas pixel (y, x); false: outside the image. Always
// float, as masks are read (exact/mask_bins.h).
static inline HD bool view_under(const ImageView *v, int h, int w, int y, int x, int *row, int *column) {
  const float cx = (float)x + 0.5f, cy = (float)y + 0.5f;
  const float at_x = v->map[0] * cx + v->map[1] * cy + v->map[2], at_y = v->map[3] * cx + v->map[4] * cy + v->map[5];
  if (!(at_x >= 0 && at_x < (float)w && at_y >= 0 && at_y < (float)h)) return false;
  *column = (int)at_x;
  *row = (int)at_y;
  return true;
}

// ---- colours --------------------------------------------------------------------------------------------------------

// torchvision's adjust_contrast, adjust_brightness and adjust_saturation (transforms/v2/functional/_color.py, of
// floats), in that order: each blends the pixel with the image's mean luminance, with black, with the pixel's
// luminance, and clamps to the range of values.
static inline HD real view_blend(real value, real other, real factor) {
  const real blend = factor * value + (1 - factor) * other;
  return blend < 0 ? 0 : blend > 255 ? 255 : blend;
}

static inline HD real view_luminance(const real rgb[3]) {
  return (real)0.2989 * rgb[0] + (real)0.587 * rgb[1] + (real)0.114 * rgb[2];
}

// [0, 255] to [0, 255]; one channel, luminance, has no saturation.
static inline HD void view_colour(const ImageView *v, int channels, real rgb[3]) {
  for (int c = 0; c < channels; c++) rgb[c] = view_blend(view_blend(rgb[c], v->mean, v->contrast), 0, v->brightness);
  if (channels < 3) return;
  const real luminance = view_luminance(rgb);
  for (int c = 0; c < 3; c++) rgb[c] = view_blend(rgb[c], luminance, v->saturation);
}
