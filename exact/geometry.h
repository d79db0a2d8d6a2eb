// Box arithmetic: IoU, the box coder, clipping, anchors. The CPU reference and the CUDA kernels compile the same
// source: every function is a fixed sequence of correctly rounded operations, without contraction into fused
// multiply-add, so that both devices agree to the bit on which boxes overlap, match and survive.
//
// Boxes are x1 y1 x2 y2 in canvas pixels; a width is x2 - x1 + extra. `extra` is 0, or 1 where x2 and y2 are the last
// pixels inside, as in Detectron and maskrcnn-benchmark. box_span makes such a box half-open; overlap and area are
// computed on spans. Comparisons are written so that NaN takes the branch that drops the box.
#pragma once
#include "base/rng.h" // HD
#include "exact/real.h"
#include "nn/ops.h"

typedef struct Box { // a row of a box tensor
  real x1, y1, x2, y2;
} Box;

static inline HD Box *box_rows(const Tensor *t) { return (Box *)t->data; }

// e^x within 1.03 ulp, and monotone (tested for every float). Math libraries differ in the last bit; this one uses only
// sums and products, so that scores and boxes computed with it are the same on every device. Range reduction gives e^x
// = 2^k · e^r with |r| ≤ log(2) / 2, where Taylor's terms up to r^7 leave an error of 5e-9.
static inline HD float portable_exp(float x) {
  if (!(x < 89)) return x > 0 ? INFINITY : x; // NaN stays
  if (x < -104) return 0;
  float k = floorf(x * 1.44269504f + 0.5f);
  float r = x - k * 0.693359375f + k * 2.12194440e-4f; // log 2 = 355/512 - 2.12e-4: the first product is exact
  float q = 1.f / 120 + r * (1.f / 720 + r * (1.f / 5040));
  float tail = r * r * (0.5f + r * (1.f / 6 + r * (1.f / 24 + r * q)));
  return ldexpf(1 + (r + tail), (int)k); // a scaling by 2^k is exact, or correctly rounded where subnormal
}

// The exponential behind every score and box. double, which only the reference uses, calls the library's.
static inline HD real geometry_exp(real x) {
  return sizeof(real) == sizeof(float) ? (real)portable_exp((float)x) : (real)real_exp(x);
}

// The probability of a logit (sigmoid).
static inline HD real sigmoid(real x) { return 1 / (1 + geometry_exp(-x)); }

// The half-open box that covers the pixels of b.
static inline HD Box box_span(Box b, real extra) {
  Box span = {b.x1, b.y1, b.x2 + extra, b.y2 + extra};
  return span;
}

static inline HD real box_area(Box span) { return (span.x2 - span.x1) * (span.y2 - span.y1); }

// Intersection over union of two spans; 0, never NaN, if there is no overlap, no area or no number.
static inline HD real box_iou(Box a, Box b) {
  real w = (b.x2 < a.x2 ? b.x2 : a.x2) - (b.x1 > a.x1 ? b.x1 : a.x1);
  real h = (b.y2 < a.y2 ? b.y2 : a.y2) - (b.y1 > a.y1 ? b.y1 : a.y1);
  if (!(w > 0 && h > 0)) return 0;
  real both = w * h, either = box_area(a) + box_area(b) - both;
  return either > 0 ? both / either : 0;
}

// Whether both sides are at least `side` long.
static inline HD bool box_reaches(Box b, real side, real extra) {
  Box span = box_span(b, extra);
  return span.x2 - span.x1 >= side && span.y2 - span.y1 >= side;
}

// Whether a box lies inside an image of h × w pixels; an edge on the right or lower border is outside.
static inline HD bool box_inside(Box b, int h, int w) {
  return b.x1 >= 0 && b.y1 >= 0 && b.x2 < (real)w && b.y2 < (real)h;
}

static inline HD real clip(real v, real high) { return v < 0 ? 0 : v > high ? high : v; }

// The part of b inside an image of h × w pixels; NaN stays NaN.
static inline HD Box box_clip(Box b, int h, int w, real extra) {
  real right = (real)w - extra, bottom = (real)h - extra;
  Box inside = {clip(b.x1, right), clip(b.y1, bottom), clip(b.x2, right), clip(b.y2, bottom)};
  return inside;
}

// The box regression target of Girshick et al., 2014, appendix C (torchvision's BoxCoder.encode):
// delta [4] = weight · ((centre(box) - centre(from)) / size(from), log(size(box) / size(from))), as x y w h.
static inline HD void box_encode(const BoxCoder *coder, Box from, Box box, real *delta) {
  from = box_span(from, coder->extra);
  box = box_span(box, coder->extra);
  real fw = from.x2 - from.x1, fh = from.y2 - from.y1;
  real fx = from.x1 + (real)0.5 * fw, fy = from.y1 + (real)0.5 * fh;
  real w = box.x2 - box.x1, h = box.y2 - box.y1;
  real x = box.x1 + (real)0.5 * w, y = box.y1 + (real)0.5 * h;
  delta[0] = coder->weight[0] * (x - fx) / fw;
  delta[1] = coder->weight[1] * (y - fy) / fh;
  delta[2] = coder->weight[2] * real_log(w / fw);
  delta[3] = coder->weight[3] * real_log(h / fh);
}

// The box that the predicted `delta` [4] makes of `from`: box_encode's inverse, growth limited by the coder's clamp.
static inline HD Box box_decode(const BoxCoder *coder, Box from, const real *delta) {
  from = box_span(from, coder->extra);
  real fw = from.x2 - from.x1, fh = from.y2 - from.y1;
  real fx = from.x1 + (real)0.5 * fw, fy = from.y1 + (real)0.5 * fh;
  real dw = delta[2] / coder->weight[2], dh = delta[3] / coder->weight[3];
  real x = delta[0] / coder->weight[0] * fw + fx, y = delta[1] / coder->weight[1] * fh + fy;
  real half_w = (real)0.5 * (geometry_exp(dw > coder->clamp ? coder->clamp : dw) * fw);
  real half_h = (real)0.5 * (geometry_exp(dh > coder->clamp ? coder->clamp : dh) * fh);
  Box box = {x - half_w, y - half_h, x + half_w - coder->extra, y + half_h - coder->extra};
  return box;
}

// Anchor number `cell` of one level, counted from the level's first.
static inline HD Box level_anchor(const AnchorLevel *level, int per_cell, int cell) {
  const float *base = level->cell[cell % per_cell];
  int pixel = cell / per_cell;
  real x = (real)(pixel % level->w) * level->stride_x, y = (real)(pixel / level->w) * level->stride_y;
  Box box = {base[0] + x, base[1] + y, base[2] + x, base[3] + y};
  return box;
}

// Anchor `index` among all.
static inline HD Box anchor_box(const Anchors *anchors, int index) {
  int l = anchors->levels - 1;
  while (index < anchors->level[l].first) l--;
  return level_anchor(&anchors->level[l], anchors->per_cell, index - anchors->level[l].first);
}
