// The CPU reference: one source for two precisions and several levels of x86-64. Every op's file compiles with `real`
// as float (table ops_cpu) and, with -DREAL64, as double (table ops_cpu64, for gradient checks), each also for the
// levels in the Makefile's `levels` (-DCPU_LEVEL=_v3: table ops_cpu_v3). It includes this and defines
// OP(conv_forward)(…). cpu/device.c takes the highest level that the CPU has.
#pragma once
#include "base/record.h"
#include "exact/real.h"
#include "nn/device.h"
#include "nn/ops.h"

#ifndef CPU_LEVEL
#define CPU_LEVEL // what MARCH says
#endif
#define JOIN_EXPANDED(a, b, c) a##b##c
#define JOIN(a, b, c) JOIN_EXPANDED(a, b, c)

#ifdef REAL64
#define OP(name) JOIN(cpu64, CPU_LEVEL, _##name)
#define REAL_DTYPE F64
#define OPS JOIN(ops_cpu64, CPU_LEVEL, )
#else
#define OP(name) JOIN(cpu, CPU_LEVEL, _##name)
#define REAL_DTYPE F32
#define OPS JOIN(ops_cpu, CPU_LEVEL, )
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
