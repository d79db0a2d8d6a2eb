#include "cpu/conv/im2col.h"
#include <string.h>
#include "cpu/reference.h"

enum { STEP = 8 }; // elements copied at once: pitches are multiples of it, so a copy that begins on one stays inside

static inline void copy(real *dst, const real *src, int len) {
  for (int i = 0; i < len; i += STEP) memcpy(dst + i, src + i, STEP * sizeof *dst);
}

static inline void copy_taps(real *dst, const real *src, int taps, int c, int ldc) {
  if (c == ldc)
    copy(dst, src, taps * c);
  else
    for (int t = 0; t < taps; t++) copy(dst + t * c, src + t * ldc, c);
}

static inline void zero(real *dst, int len) {
  for (int i = 0; i < len; i += STEP) memset(dst + i, 0, STEP * sizeof *dst);
}

void OP(im2col)(const Tensor *x, const Im2col *im2col, size_t row, int rows, int k0, int k, real *dst, int pitch) {
  const int taps = im2col->x.taps, c = x->c, ldc = x->ldc; // taps of one row of the window
  const int first_tap = k0 / c, first_lane = k0 % c, first_y = first_tap / taps, first_x = first_tap % taps;
  if (im2col_is_identity(im2col, x)) {
    const real *from = (const real *)x->data + row * ldc + k0;
    for (int m = 0; m < rows; m++) copy(dst + (size_t)m * pitch, from + (size_t)m * ldc, k);
    return;
  }
  Position p = im2col_position(im2col, row);
  for (int m = 0; m < rows; m++, p = im2col_next(im2col, p)) {
    real *to = dst + (size_t)m * pitch, *end = to + k;
    int top = im2col->y.in + im2col->y.in_stride * p.i, left = im2col->x.in + im2col->x.in_stride * p.j;
    int lane = first_lane, tap = first_x;
    for (int y = top + first_y; to < end; y++, tap = 0) {
      bool inside = y >= 0 && y < x->h;
      const real *line = at(x, p.n, inside ? y : 0, 0);
      if (inside && left >= 0 && left + taps <= x->w && tap + lane == 0 && taps * c <= end - to) {
        copy_taps(to, line + (ptrdiff_t)left * ldc, taps, c, ldc);
        to += taps * c;
        continue;
      }
      for (; tap < taps && to < end; tap++, lane = 0) {
        int len = (int)MIN(c - lane, end - to), column = left + tap;
        if (!inside || column < 0 || column >= x->w)
          zero(to, len);
        else if (lane % STEP == 0)
          copy(to, line + (ptrdiff_t)column * ldc + lane, len);
        else
          memcpy(to, line + (ptrdiff_t)column * ldc + lane, len * sizeof *to);
        to += len;
      }
    }
  }
}
