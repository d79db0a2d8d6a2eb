// The epilogue of the CPU reference's ops: a run of results leaves through a Dest, which adds the residual,
// accumulates, applies ReLU or its mask, and stores. For ops that produce pixels one run after the other; the
// convolution calls the same dest_write tile by tile.
#pragma once
#include <string.h>
#include "base/error.h"
#include "cpu/reference.h"

enum { RUN_ELEMENTS = 1024 }; // of a run at most: amortises the steps of the epilogue, and a buffer of it stays in L1

// Consecutive elements of one row of a tensor: whole pixels, or channels of a single pixel too wide for one run.
typedef struct RowRun {
  int n, y, x, lane; // lane: the first channel, padding counted
  int pixels, lanes; // lanes: channels of each pixel; 0 pixels: past the end of the row
} RowRun;

static inline int run_length(RowRun r) { return r.pixels * r.lanes; }
static inline real *run_at(const Tensor *t, RowRun r) { return at(t, r.n, r.y, r.x) + r.lane; }

// Cuts row (n, y) of t into runs: `for (RowRun r = run_first(t, n, y); r.pixels; r = run_next(t, r))`.
static inline RowRun run_first(const Tensor *t, int n, int y) {
  int pixels = MAX(RUN_ELEMENTS / t->ldc, 1);
  return (RowRun){.n = n, .y = y, .pixels = MIN(pixels, t->w), .lanes = MIN(t->ldc, RUN_ELEMENTS)};
}
static inline RowRun run_next(const Tensor *t, RowRun r) {
  r.lane += r.lanes;
  if (r.lane == t->ldc) {
    r.lane = 0;
    r.x += r.pixels;
    r.pixels = MIN(r.pixels, t->w - r.x);
  }
  r.lanes = MIN(t->ldc - r.lane, RUN_ELEMENTS);
  return r;
}

typedef struct AddendSpan { // positions of the addend along one axis, [first, last)
  int first, last;
} AddendSpan;

// The positions of the addend that position i of the destination receives. Sizes equal: one, the residual's; addend
// half: the one that i is nearest-upsampled from; addend double: the two that are upsampled from i (one at an odd
// edge).
static inline AddendSpan addend_span(int i, int size, int addend_size) {
  if (addend_size == size) return (AddendSpan){i, i + 1};
  if (addend_size < size) return (AddendSpan){i / 2, i / 2 + 1};
  return (AddendSpan){2 * i, MIN(2 * i + 2, addend_size)};
}
static inline bool addend_size_fits(int size, int addend_size) {
  return addend_size == size || addend_size == (size + 1) / 2 || (addend_size + 1) / 2 == size;
}

// What every op asserts of its Dest once, before the parallel loop: no bias, and shapes that fit.
static inline void dest_check(const Dest *d) {
  const Tensor *t = &d->t, *a = d->addend, *m = d->mask;
  CHECK(!d->bias);
  CHECK(!a || (a->ldc == t->ldc && addend_size_fits(t->h, a->h) && addend_size_fits(t->w, a->w)));
  CHECK(!m || (m->ldc == t->ldc && m->h == t->h && m->w == t->w));
}

// v += the addend at the run r of d.
static inline void dest_add(const Dest *d, RowRun r, real *restrict v) {
  const Tensor *t = &d->t, *a = d->addend;
  if (a->h == t->h && a->w == t->w) {
    const real *restrict from = run_at(a, r);
    for (int i = 0; i < run_length(r); i++) v[i] += from[i];
    return;
  }
  AddendSpan ys = addend_span(r.y, t->h, a->h);
  for (int p = 0; p < r.pixels; p++, v += r.lanes) {
    AddendSpan xs = addend_span(r.x + p, t->w, a->w);
    for (int y = ys.first; y < ys.last; y++)
      for (int x = xs.first; x < xs.last; x++) {
        const real *restrict from = at(a, r.n, y, x) + r.lane;
        for (int i = 0; i < r.lanes; i++) v[i] += from[i];
      }
  }
}

// dest_write of elements that lie side by side in the destination.
static inline void dest_write_run(const Dest *d, RowRun r, real *restrict v) {
  const Tensor *t = &d->t;
  real *to = run_at(t, r); // may be the addend's own elements, so not restrict
  int len = run_length(r);
  if (d->addend) dest_add(d, r, v);
  if (d->accumulate)
    for (int i = 0; i < len; i++) v[i] += to[i];
  if (d->relu)
    for (int i = 0; i < len; i++) v[i] = v[i] < 0 ? 0 : v[i]; // NaN stays, for the finite check to see
  if (d->mask) {
    const real *restrict mask = run_at(d->mask, r);
    for (int i = 0; i < len; i++) v[i] = mask[i] > 0 ? v[i] : 0;
  }
  for (int p = 0; p < r.pixels; p++)
    for (int lane = MAX(t->c - r.lane, 0); lane < r.lanes; lane++) v[p * r.lanes + lane] = 0;
  memcpy(to, v, (size_t)len * sizeof *v);
}

// The epilogue of run r of d: t = keep · f(v + addend + (accumulate ? t : 0)), padding channels zero. v is used up; its
// channels past c may hold anything.
static inline void dest_write(const Dest *d, RowRun r, real *restrict v) {
  if (!tensor_is_slice(&d->t)) {
    dest_write_run(d, r, v);
    return;
  }
  RowRun pixel = r;
  pixel.pixels = 1;
  for (int p = 0; p < r.pixels; p++, pixel.x++) dest_write_run(d, pixel, v + p * r.lanes);
}
