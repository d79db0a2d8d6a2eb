// The CPU reference: one source for two precisions. Every op's file compiles twice, with `real` as float (table
// ops_cpu) and, with -DREAL64, as double (table ops_cpu64, for gradient checks); it includes this and defines
// OP(conv_forward)(…).
#pragma once
#include "base/record.h"
#include "exact/real.h"
#include "nn/device.h"
#include "nn/ops.h"

#ifdef REAL64
#define OP(name) cpu64_##name
#define REAL_DTYPE F64
#define OPS ops_cpu64
#else
#define OP(name) cpu_##name
#define REAL_DTYPE F32
#define OPS ops_cpu
#endif

// The IoU that a threshold means, as in torchvision: 0.7 in double, too, of which the float is 1.2e-8 less.
static inline real iou_threshold(float iou) {
  return sizeof(real) == sizeof iou ? (real)iou : (real)float_decimal(iou);
}

// Pixel (n, y, x) of an NHWC tensor: its ldc channels.
static inline real *at(const Tensor *t, int n, int y, int x) {
  return (real *)t->data + (((size_t)n * t->h + y) * t->w + x) * t->ldc;
}
// Valid rows: those that hold data.
static inline int rows(const Tensor *t) { return t->count ? *t->count : t->n; }
