// Samples images through an affine map: which points a canvas pixel shows, and an image's value between its pixels.
// Sampling follows PyTorch's grid_sample(mode="bilinear", padding_mode="zeros", align_corners=False).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "base/basics.h"
#include "base/rng.h" // HD
#include "exact/tap.h"

enum { AFFINE_MOST_SAMPLES = 16 }; // per canvas pixel, along each axis

// Number of samples that cover a step of (across, down) pixels of the image. Up to 1.25 pixels it is one, so that
// rotated or slightly zoomed images are sampled once.
static inline HD int affine_samples(real across, real down) {
  const real step = real_sqrt(across * across + down * down) + (real)0.75;
  return step < AFFINE_MOST_SAMPLES ? MAX((int)step, 1) : AFFINE_MOST_SAMPLES; // NaN: the most
}

// Pixel (y, x) of rgb [h, w, 3] by channel, or (channels 1) its luminance by ITU-R 601 as Pillow rounds it; black
// outside the image.
static inline HD void affine_texel(const uint8_t *rgb, int h, int w, int y, int x, int channels, real value[3]) {
  const bool inside = y >= 0 && y < h && x >= 0 && x < w;
  const uint8_t *p = rgb + (inside ? ((size_t)y * w + x) * 3 : 0);
  if (channels == 1)
    value[0] = inside ? (real)((19595 * p[0] + 38470 * p[1] + 7471 * p[2] + 0x8000) >> 16) : 0;
  else
    for (int c = 0; c < 3; c++) value[c] = inside ? (real)p[c] : 0;
}

// Adds the image's value at point (u, v), [0, 255].
static inline HD void affine_add(const uint8_t *rgb, int h, int w, real u, real v, int channels, real sum[3]) {
  const real px = u - (real)0.5, py = v - (real)0.5;
  if (!(px > -1 && px < (real)w && py > -1 && py < (real)h)) return; // negated so that NaN counts as outside
  Tap tx, ty;
  tx.low = (int)real_floor(px);
  ty.low = (int)real_floor(py);
  tx.high = tx.low + 1;
  ty.high = ty.low + 1;
  tx.fraction = px - (real)tx.low;
  ty.fraction = py - (real)ty.low;
  real a[3], b[3], c[3], d[3];
  affine_texel(rgb, h, w, ty.low, tx.low, channels, a);
  affine_texel(rgb, h, w, ty.low, tx.high, channels, b);
  affine_texel(rgb, h, w, ty.high, tx.low, channels, c);
  affine_texel(rgb, h, w, ty.high, tx.high, channels, d);
  for (int k = 0; k < channels; k++) sum[k] += tap_blend(ty, tx, a[k], b[k], c[k], d[k]);
}

// Whether each canvas pixel shows a whole pixel of the image, where augmentation leaves an image of the canvas's size
// as it is, mirrors or shifts it: one sample, on the centre of pixel (y + shift_y, x · across + shift_x), which no
// rounding moves, and whose neighbours have no weight.
static inline HD bool affine_shifts(const float map[6], int *across, int *shift_x, int *shift_y) {
  const float most = 0x1p20f, c = map[2], f = map[5];
  if (!(map[0] == 1 || map[0] == -1) || map[1] != 0 || map[3] != 0 || map[4] != 1) return false;
  if (!(c > -most && c < most && f > -most && f < most) || (float)(int)c != c || (float)(int)f != f) return false;
  *across = (int)map[0];
  *shift_x = (int)c - (map[0] < 0);
  *shift_y = (int)f;
  return true;
}

// v / n. Skips the division by 1, which costs a GPU as much as any other.
static inline HD real affine_share(real v, int n) { return n == 1 ? v : v / (real)n; }

// Canvas pixel (y, x) of the image, [0, 255], as mapped by nn/ops.h's preprocess_affine.
static inline HD void affine_pixel(const float map[6], const uint8_t *rgb, int h, int w, int y, int x, int channels,
                                   bool antialias, real value[3]) {
  const real a = map[0], b = map[1], c = map[2], d = map[3], e = map[4], f = map[5];
  const int nx = antialias ? affine_samples(a, d) : 1, ny = antialias ? affine_samples(b, e) : 1;
  for (int k = 0; k < 3; k++) value[k] = 0;
  for (int i = 0; i < ny; i++)
    for (int j = 0; j < nx; j++) {
      const real cx = (real)x + affine_share((real)j + (real)0.5, nx),
                 cy = (real)y + affine_share((real)i + (real)0.5, ny);
      const real u = a * cx + b * cy + c, v = d * cx + e * cy + f;
      affine_add(rgb, h, w, u, v, channels, value);
    }
  for (int k = 0; k < 3; k++) value[k] = affine_share(value[k], nx * ny);
}
