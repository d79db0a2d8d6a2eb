// Max pooling's gradient where the compiler knows the windows' size and stride, in one pass: a thread goes down a strip
// of columns, window row by window row, finds the maxima of the windows that reach the strip and adds their gradients
// in registers. x, dy and dx cross the memory once; what strips share at their borders comes from the caches. A row of
// a window is searched once, for all windows that have it.
#pragma once
#include "cuda/common.cuh"
extern "C" {
#include "exact/pool_windows.h"
}

// ---- eight channels as words ----------------------------------------------------------------------------------------
//
// A word is a float or a pair of 16-bit values, and has a lane or two; a mask has all bits of a lane set or none.

template <class T> constexpr int WORDS = 2 * sizeof(T);
template <class T> constexpr int LANES = 8 / WORDS<T>;                          // of a word
template <class T> constexpr uint32_t EACH_LANE = sizeof(T) == 4 ? 1 : 0x10001; // times a lane's bits: those in all
template <class T> struct Words { uint32_t at[WORDS<T>]; };
template <class T> using PairOf = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;

template <class T> static __device__ __forceinline__ PairOf<T> pair_of(uint32_t word) { return *(PairOf<T> *)&word; }
template <class T> static __device__ __forceinline__ Words<T> read_words(const T *p) {
  const Raw8<T> raw = read8(p);
  return *(const Words<T> *)&raw;
}

// The larger of two, NaN where either is; of zeros either.
template <class T> static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
  if constexpr (sizeof(T) == 4) {
    const float x = __uint_as_float(a), y = __uint_as_float(b);
    return y > x || y != y ? b : a;
  } else {
    const PairOf<T> max = __hmax2_nan(pair_of<T>(a), pair_of<T>(b));
    return *(const uint32_t *)&max;
  }
}
// Masks the lanes that are equal as numbers: zeros are, NaN is not.
template <class T> static __device__ __forceinline__ uint32_t equal(uint32_t a, uint32_t b) {
  if constexpr (sizeof(T) == 4)
    return __uint_as_float(a) == __uint_as_float(b) ? ~0u : 0;
  else
    return __heq2_mask(pair_of<T>(a), pair_of<T>(b));
}
// Masks the lanes that are greater than 0.
template <class T> static __device__ __forceinline__ uint32_t positive(uint32_t a) {
  if constexpr (sizeof(T) == 4)
    return __uint_as_float(a) > 0 ? ~0u : 0;
  else
    return __hgt2_mask(pair_of<T>(a), pair_of<T>(0));
}
template <class T> static __device__ __forceinline__ uint32_t nan_lanes(uint32_t a) { return ~equal<T>(a, a); }

// ---- windows --------------------------------------------------------------------------------------------------------

// A row of a window: its maxima, and in each lane the bit 1 << column of the one that is taken, of equal ones the
// first, of NaN the last.
template <class T> struct RowMaximum {
  Words<T> max, column;
  bool nan; // any of the lanes
};

// Of the row `pixels` [SIZE]. Where it begins before the image (`before`, by one column), column 0 is a copy of 1, and
// has its bit; columns past `last`, behind the image, are copies of that one, and lose against it.
template <class T, int SIZE>
static __device__ __forceinline__ RowMaximum<T> row_maximum(const Words<T> *pixels, bool before, int last) {
  RowMaximum<T> r;
  const uint32_t bit0 = EACH_LANE<T> << before;
  uint32_t any; // NaN where one of the maxima is
#pragma unroll
  for (int i = 0; i < WORDS<T>; i++) {
    uint32_t max = pixels[0].at[i], column = EACH_LANE<T> << (SIZE - 1);
#pragma unroll
    for (int k = 1; k < SIZE; k++) max = larger<T>(max, pixels[k].at[i]);
#pragma unroll
    for (int k = SIZE - 2; k >= 0; k--) {
      const uint32_t taken = equal<T>(pixels[k].at[i], max);
      column = (taken & (k ? EACH_LANE<T> << k : bit0)) | (~taken & column);
    }
    r.max.at[i] = max;
    r.column.at[i] = column;
    any = i ? larger<T>(any, max) : max;
  }
  r.nan = nan_lanes<T>(any);
  if (r.nan)
#pragma unroll
    for (int i = 0; i < WORDS<T>; i++)
#pragma unroll
      for (int k = 0; k < SIZE; k++) {
        const uint32_t taken = k <= last ? nan_lanes<T>(pixels[k].at[i]) : 0;
        r.column.at[i] = (taken & (k ? EACH_LANE<T> << k : bit0)) | (~taken & r.column.at[i]);
      }
  return r;
}

// The columns of a window's rows, 0 in all but the row that is taken, of equal ones the first, of NaN the last. Rows
// before and behind the image are as columns are.
template <class T, int SIZE>
static __device__ __forceinline__ void window_maximum(Words<T> column[SIZE], const RowMaximum<T> *const rows[SIZE],
                                                      bool before, int last) {
  bool nan = false;
#pragma unroll
  for (int k = 0; k < SIZE; k++) nan |= rows[k]->nan;
#pragma unroll
  for (int i = 0; i < WORDS<T>; i++) {
    uint32_t max = rows[0]->max.at[i], left = ~0u;
#pragma unroll
    for (int k = 1; k < SIZE; k++) max = larger<T>(max, rows[k]->max.at[i]);
#pragma unroll
    for (int k = 0; k < SIZE; k++) {
      const uint32_t taken = k == 0 && before ? 0 : k < SIZE - 1 ? equal<T>(rows[k]->max.at[i], max) : ~0u;
      column[k].at[i] = rows[k]->column.at[i] & taken & left;
      left &= ~taken;
    }
  }
  if (nan)
#pragma unroll
    for (int i = 0; i < WORDS<T>; i++)
#pragma unroll
      for (int k = 0; k < SIZE; k++) {
        const uint32_t taken = k <= last ? nan_lanes<T>(rows[k]->max.at[i]) : 0;
#pragma unroll
        for (int j = 0; j < SIZE; j++)
          column[j].at[i] = j == k ? column[j].at[i] | (taken & rows[j]->column.at[i]) : column[j].at[i] & ~taken;
      }
}

// ---- the kernel -----------------------------------------------------------------------------------------------------

enum { STRIP_THREADS = 128 };

// A Dest that has a mask or nothing is stored in the lanes of the type: what dest_store8 asks for each pixel would be a
// third of the kernel.
static __device__ __forceinline__ bool bare(const DestArgs &d) {
  return !d.bias && !d.addend.data && !d.accumulate && !d.relu;
}
// The epilogue of eight channels at `offset`, in elements.
template <class T> static __device__ __forceinline__ void store_bare(const DestArgs &d, size_t offset, const Eight &v) {
  Raw8<T> out;
  store8((T *)&out, v);
  if (d.mask.data) {
    const Words<T> mask = read_words((const T *)d.mask.data + offset);
#pragma unroll
    for (int i = 0; i < WORDS<T>; i++) ((uint32_t *)&out)[i] &= positive<T>(mask.at[i]);
  }
  *(Raw8<T> *)((T *)d.t.data + offset) = out;
}

// How windows lie on a strip of COLUMNS, counted from the padding, in groups of STRIDE that begin as windows do.
template <int SIZE, int STRIDE, int COLUMNS> struct Strip {
  static constexpr int BEHIND = (SIZE - 1) / STRIDE;             // windows that reach a group from before it
  static constexpr int WINDOWS = COLUMNS / STRIDE + BEHIND;      // that reach the strip, of a row
  static constexpr int WIDTH = (WINDOWS - 1) * STRIDE + SIZE;    // columns that these cover
  static constexpr int KEPT = SIZE > STRIDE ? SIZE - STRIDE : 0; // rows that two rows of windows have in common
  static_assert(COLUMNS % STRIDE == 0 && SIZE >= STRIDE && SIZE > 1, "");
};

// sum [SIZE][COLUMNS], of a row of windows: window v's gradients go to those of its pixels that are the strip's, by the
// columns that window_maximum tells.
template <class T, int SIZE, int STRIDE, int COLUMNS>
static __device__ __forceinline__ void add_gradients(float sum[SIZE][COLUMNS][8], const Words<T> column[SIZE],
                                                     const Eight &grad, int v) {
#pragma unroll
  for (int channel = 0; channel < 8; channel++)
#pragma unroll
    for (int k = 0; k < SIZE * SIZE; k++) {
      const int at = (v - Strip<SIZE, STRIDE, COLUMNS>::BEHIND) * STRIDE + k % SIZE; // of the strip's columns
      const uint32_t word = column[k / SIZE].at[channel / LANES<T>];
      const int bit = channel % LANES<T> * 16 + k % SIZE;
      if (at >= 0 && at < COLUMNS && word >> bit & 1) sum[k / SIZE][at][channel] += grad.v[channel];
    }
}

// From a row of windows to the next, which has some of its rows.
template <class T, int SIZE, int STRIDE, int COLUMNS, int WINDOWS>
static __device__ __forceinline__ void slide(RowMaximum<T> rows[SIZE][WINDOWS], float sum[SIZE][COLUMNS][8]) {
  constexpr int KEPT = Strip<SIZE, STRIDE, COLUMNS>::KEPT;
#pragma unroll
  for (int k = 0; k < SIZE; k++) {
#pragma unroll
    for (int v = 0; v < WINDOWS; v++)
      if (k < KEPT) rows[k][v] = rows[k + STRIDE][v];
#pragma unroll
    for (int at = 0; at < COLUMNS * 8; at++) sum[k][at / 8][at % 8] = k < KEPT ? sum[k + STRIDE][at / 8][at % 8] : 0;
  }
}

// dx [n, h, w, c]: each pixel gathers the gradients of the windows whose maximum it is, in row-major order; then the
// epilogue. A thread has eight channels of a strip, and of its groups of STRIDE rows `band`; padding is at most 1. Grid
// (n · strips · vectors of a pixel, bands).
template <class T, int SIZE, int STRIDE, int COLUMNS>
__global__ void __launch_bounds__(STRIP_THREADS)
    max_pool_strip_kernel(Pool pool, Tensor x, Tensor dy, const __grid_constant__ DestArgs dx, int strips, int band) {
  using S = Strip<SIZE, STRIDE, COLUMNS>;
  constexpr int NEW = SIZE - S::KEPT; // rows that a row of windows adds
  const unsigned i = thread_index(), eights = x.ldc / 8, strip_at = i / eights, n = strip_at / strips;
  if ((int)n >= rows_of(x)) return;
  const int strip = strip_at - n * strips, c = (i - strip_at * eights) * 8;
  const int first_out = strip * (COLUMNS / STRIDE) - S::BEHIND; // window, and its first column
  const int first = first_out * STRIDE - pool.pad, own = strip * COLUMNS - pool.pad;
  const uint32_t row = x.w * x.ldc;                // elements; an image has fewer than 2³²
  const size_t origin = (size_t)n * x.h * row + c; // of its own, in x and in dx
  const bool simple = bare(dx) && c + 8 <= dx.t.c; // no channel of padding, either
  const T *image = (const T *)x.data + origin;

  RowMaximum<T> rows[SIZE][S::WINDOWS];
  float sum[SIZE][COLUMNS][8] = {};
  auto read_row = [&](Words<T> *to, int y) {
    const uint32_t at = min(max(y, 0), x.h - 1) * row;
#pragma unroll
    for (int k = 0; k < S::WIDTH; k++) to[k] = read_words(image + (at + min(max(first + k, 0), x.w - 1) * x.ldc));
  };
  auto search = [&](RowMaximum<T> *to, const Words<T> *pixels) {
#pragma unroll
    for (int v = 0; v < S::WINDOWS; v++) {
      const int left = first + v * STRIDE;
      to[v] = row_maximum<T, SIZE>(pixels + v * STRIDE, left < 0, x.w - 1 - left);
    }
  };

  const int own_out = blockIdx.y * band, end = min(own_out + band, (x.h + pool.pad + STRIDE - 1) / STRIDE);
  int oy = max(own_out - S::BEHIND, 0);
#pragma unroll
  for (int k = 0; k < S::KEPT; k++) {
    Words<T> pixels[S::WIDTH];
    read_row(pixels, oy * STRIDE - pool.pad + k);
    search(rows[k], pixels);
  }
  for (; oy < end; oy++) {
    const int top = oy * STRIDE - pool.pad;
    Words<T> pixels[NEW][S::WIDTH];
    Raw8<T> g[S::WINDOWS];
#pragma unroll
    for (int k = 0; k < NEW; k++) read_row(pixels[k], top + S::KEPT + k);
#pragma unroll
    for (int v = 0; v < S::WINDOWS; v++) {
      const int ox = first_out + v;
      g[v] = Raw8<T>{};
      if (oy < dy.h && ox >= 0 && ox < dy.w) g[v] = read8(pixel<T>(dy, n, oy, ox) + c);
    }
#pragma unroll
    for (int k = 0; k < NEW; k++) search(rows[S::KEPT + k], pixels[k]);
#pragma unroll
    for (int v = 0; v < S::WINDOWS; v++) {
      const Eight grad = to_eight<T>(g[v]);
      const RowMaximum<T> *of[SIZE];
      Words<T> column[SIZE];
#pragma unroll
      for (int k = 0; k < SIZE; k++) of[k] = &rows[k][v];
      window_maximum<T, SIZE>(column, of, top < 0, x.h - 1 - top);
      add_gradients<T, SIZE, STRIDE, COLUMNS>(sum, column, grad, v);
    }
#pragma unroll
    for (int k = 0; k < STRIDE * COLUMNS; k++) { // the epilogue of the pixels that no later window reaches
      const int y = top + k / COLUMNS, ix = own + k % COLUMNS;
      Eight total;
#pragma unroll
      for (int channel = 0; channel < 8; channel++) total.v[channel] = sum[k / COLUMNS][k % COLUMNS][channel];
      if (oy < own_out || y < 0 || y >= x.h || ix < 0 || ix >= x.w) continue;
      if (simple)
        store_bare<T>(dx, origin + (y * row + ix * x.ldc), total);
      else
        dest_store8<T>(dx, n, y, ix, c, total, {});
    }
    slide<T, SIZE, STRIDE, COLUMNS, S::WINDOWS>(rows, sum);
  }
}

// Launches it. The rows of windows that reach a band from above are searched again, so that bands are high where there
// are threads enough to hide the memory's latency, and lower where not.
template <class T, int SIZE, int STRIDE, int COLUMNS>
static void max_pool_strips(Device *dev, const Pool *pool, const Tensor *x, const Tensor *dy, const Dest *dx) {
  enum { HIGHEST = 8, ENOUGH = 1 << 15 };
  const int strips = blocks_for(x->w + pool->pad, COLUMNS), groups = blocks_for(x->h + pool->pad, STRIDE);
  const size_t threads = (size_t)x->n * strips * (x->ldc / 8);
  int band = HIGHEST;
  while (band > 2 * Strip<SIZE, STRIDE, COLUMNS>::BEHIND && band > 1 && threads * blocks_for(groups, band) < ENOUGH)
    band /= 2;
  const dim3 grid(blocks_for(threads, STRIP_THREADS), blocks_for(groups, band));
  CHECK(threads <= UINT32_MAX - STRIP_THREADS && grid.y <= 65535 && tensor_elements(x) / x->n <= UINT32_MAX);
  max_pool_strip_kernel<T, SIZE, STRIDE, COLUMNS>
      <<<grid, STRIP_THREADS, 0, stream_of(dev)>>>(*pool, *x, *dy, dest_args(dx), strips, band);
  LAUNCH_CHECK();
}
