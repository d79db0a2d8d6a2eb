// Max pooling's gradient where the compiler knows the windows' size and stride, in one pass: a thread goes down a strip
// of columns, window row by window row, finds the maxima of the windows that reach the strip and adds their gradients
// in registers. x, dy and dx cross the memory once; what strips share at their borders comes from the caches. A row of
// a window is searched once, for all windows that have it.
#pragma once
#include "cuda/common.cuh"
extern "C" {
#include "exact/pool_windows.h"
}

// ---- channels as words ----------------------------------------------------------------------------------------------
//
// A thread has N words of channels, 1, 2, 4 or 8. A word is a float or a pair of 16-bit values, and has a lane or
// two; a mask has all bits of a lane set or none.

template <class T> constexpr int LANES = 4 / sizeof(T);                         // of a word
template <class T> constexpr uint32_t EACH_LANE = sizeof(T) == 4 ? 1 : 0x10001; // times a lane's bits: those in all
template <int N> struct Words { alignas(N < 4 ? 4 * N : 16) uint32_t at[N]; };
template <class T> using PairOf = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;

template <class T> static __device__ __forceinline__ PairOf<T> pair_of(uint32_t word) { return *(PairOf<T> *)&word; }
template <int N, class T> static __device__ __forceinline__ Words<N> read_words(const T *p) {
  return *(const Words<N> *)p;
}
template <class T> static __device__ __forceinline__ float lane_of(uint32_t word, int lane) {
  if constexpr (sizeof(T) == 4)
    return __uint_as_float(word);
  else if constexpr (std::is_same_v<T, __nv_bfloat16>) // a float's upper half
    return __uint_as_float(lane ? word & 0xffff0000u : word << 16);
  else
    return to_float(((const T *)&word)[lane]);
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
template <int N> struct RowMaximum { Words<N> max, column; };

// Of the row `pixels` [SIZE] without NaN. Where it begins before the image (`before`, by one column), column 0 is a
// copy of 1, and has its bit.
template <class T, int SIZE, int N>
static __device__ __forceinline__ RowMaximum<N> row_maximum(const Words<N> *pixels, bool before) {
  RowMaximum<N> r;
  const uint32_t bit0 = EACH_LANE<T> << before;
#pragma unroll
  for (int i = 0; i < N; i++) {
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
  }
  return r;
}
// The columns where there is NaN. Columns past `last`, behind the image, are copies of that one, and lose against it.
template <class T, int SIZE, int N>
static __device__ __forceinline__ void row_takes_nan(RowMaximum<N> &r, const Words<N> *pixels, bool before, int last) {
#pragma unroll
  for (int i = 0; i < N; i++)
#pragma unroll
    for (int k = 0; k < SIZE; k++) {
      const uint32_t taken = k <= last ? nan_lanes<T>(pixels[k].at[i]) : 0;
      r.column.at[i] = (taken & (EACH_LANE<T> << (k || !before ? k : 1))) | (~taken & r.column.at[i]);
    }
}

// The columns of a window's rows, 0 in all but the row that is taken, of equal ones the first, of NaN, which there may
// be, the last. Rows before and behind the image are as columns are.
template <class T, int SIZE, int N>
static __device__ __forceinline__ void window_maximum(Words<N> column[SIZE], const RowMaximum<N> *const rows[SIZE],
                                                      bool nan, bool before, int last) {
#pragma unroll
  for (int i = 0; i < N; i++) {
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
    for (int i = 0; i < N; i++)
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
// On a multiprocessor, for which registers are to be enough.
template <int SIZE, int WORDS> constexpr int STRIP_BLOCKS = (SIZE == 2 ? 6 : 4) / (WORDS > 8 ? 2 : 1);

// Whether strip_store does all that a Dest asks for.
static inline bool strips_cover(const Dest *d) {
  const Tensor *a = d->addend;
  return !d->bias && !d->relu && !(a && d->accumulate) && (!a || (a->h == d->t.h && a->w == d->t.w));
}
// The epilogue of the channels from c on, at `offset`, in elements.
template <class T, int N>
static __device__ __forceinline__ void strip_store(const DestArgs &d, size_t offset, int c, const float *sum) {
  constexpr int CHANNELS = N * LANES<T>;
  Words<N> out, added = {};
  const T *more = (const T *)(d.accumulate ? d.t.data : d.addend.data);
  if (more) added = read_words<N>(more + offset);
#pragma unroll
  for (int k = 0; k < CHANNELS; k++)
    ((T *)&out)[k] = from_float<T>(sum[k] + lane_of<T>(added.at[k / LANES<T>], k % LANES<T>));
  if (d.mask.data) {
    const Words<N> mask = read_words<N>((const T *)d.mask.data + offset);
#pragma unroll
    for (int i = 0; i < N; i++) out.at[i] &= positive<T>(mask.at[i]);
  }
  if (c + CHANNELS > d.t.c)
#pragma unroll
    for (int k = 0; k < CHANNELS; k++)
      if (c + k >= d.t.c) ((T *)&out)[k] = from_float<T>(0.f);
  *(Words<N> *)((T *)d.t.data + offset) = out;
}

// How windows lie on a strip of COLUMNS, counted from the padding, in groups of STRIDE that begin as windows do.
template <int SIZE, int STRIDE, int COLUMNS> struct Strip {
  static constexpr int BEHIND = (SIZE - 1) / STRIDE;             // windows that reach a group from before it
  static constexpr int WINDOWS = COLUMNS / STRIDE + BEHIND;      // that reach the strip, of a row
  static constexpr int WIDTH = (WINDOWS - 1) * STRIDE + SIZE;    // columns that these cover
  static constexpr int KEPT = SIZE > STRIDE ? SIZE - STRIDE : 0; // rows that two rows of windows have in common
  // Rows of windows after which rows are where they were in registers, if they take turns instead of being moved.
  static constexpr int TURNS = STRIDE == 1 ? SIZE : 1;
  static_assert(COLUMNS % STRIDE == 0 && SIZE >= STRIDE && SIZE > 1 && (STRIDE == 1 || WINDOWS <= 2), "");
};

// sum [SIZE][COLUMNS], of a row of windows that begins with row `turn`: window v's gradients go to those of its pixels
// that are the strip's, by the columns that window_maximum tells.
template <class T, int SIZE, int STRIDE, int COLUMNS, int N>
static __device__ __forceinline__ void add_gradients(float sum[SIZE][COLUMNS][N * LANES<T>],
                                                     const Words<N> column[SIZE], const Words<N> &grad, int v,
                                                     int turn) {
#pragma unroll
  for (int channel = 0; channel < N * LANES<T>; channel++)
#pragma unroll
    for (int k = 0; k < SIZE * SIZE; k++) {
      const int at = (v - Strip<SIZE, STRIDE, COLUMNS>::BEHIND) * STRIDE + k % SIZE; // of the strip's columns
      const uint32_t word = column[k / SIZE].at[channel / LANES<T>];
      const int bit = channel % LANES<T> * 16 + k % SIZE;
      const float g = lane_of<T>(grad.at[channel / LANES<T>], channel % LANES<T>);
      if (at >= 0 && at < COLUMNS && word >> bit & 1) sum[(k / SIZE + turn) % SIZE][at][channel] += g;
    }
}

// From a row of windows to the next, which has some of its rows.
template <int SIZE, int STRIDE, int COLUMNS, int WINDOWS, int N, int CHANNELS>
static __device__ __forceinline__ void slide(RowMaximum<N> rows[SIZE][WINDOWS], bool nan[SIZE],
                                             float sum[SIZE][COLUMNS][CHANNELS]) {
  constexpr int KEPT = Strip<SIZE, STRIDE, COLUMNS>::KEPT;
#pragma unroll
  for (int k = 0; k < SIZE; k++) {
    if (k < KEPT) nan[k] = nan[k + STRIDE];
#pragma unroll
    for (int v = 0; v < WINDOWS; v++)
      if (k < KEPT) rows[k][v] = rows[k + STRIDE][v];
#pragma unroll
    for (int at = 0; at < COLUMNS * CHANNELS; at++) {
      const int column = at / CHANNELS, channel = at % CHANNELS;
      sum[k][column][channel] = k < KEPT ? sum[k + STRIDE][column][channel] : 0;
    }
  }
}

// dx [n, h, w, c]: each pixel gathers the gradients of the windows whose maximum it is, in row-major order; then the
// epilogue. A thread has N words of a strip, and of its groups of STRIDE rows `band`; padding is at most 1. Grid
// (n · strips · vectors of N words of a pixel, bands).
template <class T, int SIZE, int STRIDE, int COLUMNS, int N>
__global__ void __launch_bounds__(STRIP_THREADS, STRIP_BLOCKS<SIZE, N * COLUMNS>)
    max_pool_strip_kernel(Pool pool, Tensor x, Tensor dy, const __grid_constant__ DestArgs dx, int strips, int band) {
  using S = Strip<SIZE, STRIDE, COLUMNS>;
  constexpr int NEW = SIZE - S::KEPT; // rows that a row of windows adds
  constexpr int CHANNELS = N * LANES<T>;
  const unsigned i = thread_index(), vectors = x.ldc / CHANNELS, strip_at = i / vectors, n = strip_at / strips;
  if ((int)n >= rows_of(x)) return;
  const int strip = strip_at - n * strips, c = (i - strip_at * vectors) * CHANNELS;
  const int first_out = strip * (COLUMNS / STRIDE) - S::BEHIND; // window, and its first column
  const int first = first_out * STRIDE - pool.pad, own = strip * COLUMNS - pool.pad;
  const uint32_t row = x.w * x.ldc;                // elements; an image has fewer than 2³²
  const size_t origin = (size_t)n * x.h * row + c; // of its own, in x and in dx
  const T *image = (const T *)x.data + origin;

  const T *grads = (const T *)dy.data + (size_t)n * dy.h * dy.w * dy.ldc + c;

  RowMaximum<N> rows[SIZE][S::WINDOWS];
  bool nan[SIZE]; // whether a row has any
  float sum[SIZE][COLUMNS][CHANNELS] = {};
  auto read_row = [&](Words<N> *pixels, int y) {
    const uint32_t at = min(max(y, 0), x.h - 1) * row;
#pragma unroll
    for (int k = 0; k < S::WIDTH; k++)
      pixels[k] = read_words<N>(image + (at + min(max(first + k, 0), x.w - 1) * x.ldc));
  };
  auto search = [&](RowMaximum<N> *maxima, const Words<N> *pixels) {
    uint32_t any = 0; // NaN where one of the maxima is
#pragma unroll
    for (int v = 0; v < S::WINDOWS; v++) {
      maxima[v] = row_maximum<T, SIZE, N>(pixels + v * STRIDE, first + v * STRIDE < 0);
      if (v * STRIDE % SIZE == 0 || v + 1 == S::WINDOWS) // together they have all columns
#pragma unroll
        for (int i = 0; i < N; i++) any = v || i ? larger<T>(any, maxima[v].max.at[i]) : maxima[v].max.at[i];
    }
    const bool found = nan_lanes<T>(any);
    if (found)
#pragma unroll
      for (int v = 0; v < S::WINDOWS; v++) {
        const int left = first + v * STRIDE;
        row_takes_nan<T, SIZE, N>(maxima[v], pixels + v * STRIDE, left < 0, x.w - 1 - left);
      }
    return found;
  };

  const int own_out = blockIdx.y * band, end = min(own_out + band, (x.h + pool.pad + STRIDE - 1) / STRIDE);
  int oy = max(own_out - S::BEHIND, 0);
#pragma unroll
  for (int k = 0; k < S::KEPT; k++) {
    Words<N> pixels[S::WIDTH];
    read_row(pixels, oy * STRIDE - pool.pad + k);
    nan[k] = search(rows[k], pixels);
  }
  while (oy < end) {
#pragma unroll
    for (int turn = 0; turn < S::TURNS; turn++, oy++) {
      if (turn && oy >= end) break;
      const int top = oy * STRIDE - pool.pad;
      Words<N> pixels[NEW][S::WIDTH], g[S::WINDOWS];
#pragma unroll
      for (int k = 0; k < NEW; k++) read_row(pixels[k], top + S::KEPT + k);
#pragma unroll
      for (int v = 0; v < S::WINDOWS; v++) {
        const int ox = first_out + v;
        g[v] = Words<N>{};
        if (oy < dy.h && ox >= 0 && ox < dy.w) g[v] = read_words<N>(grads + (uint32_t)(oy * dy.w + ox) * dy.ldc);
      }
#pragma unroll
      for (int k = S::KEPT; k < SIZE; k++)
        nan[(k + turn) % SIZE] = search(rows[(k + turn) % SIZE], pixels[k - S::KEPT]);
      bool any_nan = false;
#pragma unroll
      for (int k = 0; k < SIZE; k++) any_nan |= nan[k];
#pragma unroll
      for (int v = 0; v < S::WINDOWS; v++) {
        const RowMaximum<N> *of[SIZE];
        Words<N> column[SIZE];
#pragma unroll
        for (int k = 0; k < SIZE; k++) of[k] = &rows[(k + turn) % SIZE][v];
        window_maximum<T, SIZE, N>(column, of, any_nan, top < 0, x.h - 1 - top);
        add_gradients<T, SIZE, STRIDE, COLUMNS, N>(sum, column, g[v], v, turn);
      }
#pragma unroll
      for (int k = 0; k < STRIDE * COLUMNS; k++) { // the epilogue of the pixels that no later window reaches
        const int y = top + k / COLUMNS, ix = own + k % COLUMNS;
        if (oy < own_out || y < 0 || y >= x.h || ix < 0 || ix >= x.w) continue;
        strip_store<T, N>(dx, origin + (y * row + ix * x.ldc), c, sum[(k / COLUMNS + turn) % SIZE][k % COLUMNS]);
      }
      if (S::TURNS > 1)
#pragma unroll
        for (int at = 0; at < COLUMNS * CHANNELS; at++) sum[turn][at / CHANNELS][at % CHANNELS] = 0;
      else
        slide<SIZE, STRIDE, COLUMNS, S::WINDOWS, N, CHANNELS>(rows, nan, sum);
    }
  }
}

// Launches it. The rows of windows that reach a band from above are searched again, so that bands are high where there
// are threads enough to hide the memory's latency, and lower where not.
template <class T, int SIZE, int STRIDE, int COLUMNS, int N>
static void max_pool_strips(Device *dev, const Pool *pool, const Tensor *x, const Tensor *dy, const Dest *dx) {
  enum { HIGHEST = 8, ENOUGH = 1 << 15 };
  const int strips = blocks_for(x->w + pool->pad, COLUMNS), groups = blocks_for(x->h + pool->pad, STRIDE);
  const size_t threads = (size_t)x->n * strips * (x->ldc / (N * LANES<T>));
  int band = HIGHEST;
  while (band > 2 * Strip<SIZE, STRIDE, COLUMNS>::BEHIND && band > 1 && threads * blocks_for(groups, band) < ENOUGH)
    band /= 2;
  const dim3 grid(blocks_for(threads, STRIP_THREADS), blocks_for(groups, band));
  CHECK(threads <= UINT32_MAX - STRIP_THREADS && grid.y <= 65535 && tensor_elements(x) / x->n <= UINT32_MAX);
  max_pool_strip_kernel<T, SIZE, STRIDE, COLUMNS, N>
      <<<grid, STRIP_THREADS, 0, stream_of(dev)>>>(*pool, *x, *dy, dest_args(dx), strips, band);
  LAUNCH_CHECK();
}
