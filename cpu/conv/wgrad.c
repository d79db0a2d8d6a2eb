// wgrad: dw = dyᵀ · im2col(x), a GEMM whose K is the pixels. Split-K: the pixels are cut into slices, so that there is
// work for many threads even where dw is small; each (tile of dw, slice) has partial sums of its own, and the slices of
// a tile are added in order. The split depends on shapes alone, so the bits do not depend on threads.
// dw is transposed on the way, [taps · c, k]: the im2col matrix is the longer side and wastes less of the GEMM's tall
// tiles.
#include <omp.h>
#include <string.h>
#include "cpu/conv/gemm.h"
#include "cpu/conv/im2col.h"
#include "cpu/reference.h"

enum {
  ROW_STEP = 4 * GEMM_MR, // whole panels, and whole steps of a copy
  TILE_ROWS = 44 * GEMM_MR,
  TILE_COLUMNS = 256,
  WRITE_COLUMNS = 16,        // a cache line of floats
  MIN_SLICE_K = 4 * GEMM_KC, // pixels, at least
  TASKS = 16,                // (tile, slice) pairs aimed at, of tiles as high as AVX-512's …
  TASK_ROWS = 616,           // … for every GEMM_MR, so that the bits do not depend on it
  MAX_PAIRS = 8,
  COPY_STEP = MIN(GEMM_NR, 8), // divides every pitch
};

typedef struct WgradSplitK {
  int pairs;
  const Tensor *x, *dy;
  const FilterGrad *out;
  int c, m, n; // x's channels; the GEMM's M, taps · c, and its N
  int tile_rows, tiles_m, tiles_n;
  int a_pitch, partial_pitch;
  size_t slice_k;        // pixels
  int slices[MAX_PAIRS]; // of each pair, sized for full tensors: a count only leaves some of them empty
  int all_slices;        // at least 1
  Im2col im2col[MAX_PAIRS];
  real *partial; // [tile][slice][tile_rows, partial_pitch]; a thread's own where a single slice is the whole sum
} WgradSplitK;

static size_t partial_size(const WgradSplitK *g) { return (size_t)g->tile_rows * g->partial_pitch; }

// b [panels][pixels][GEMM_NR] = columns n0 … n0 + n - 1 of dy's pixels, its padding channels, and zeros.
static void pack_dy(const Tensor *dy, size_t pixel, int pixels, int n0, int n, real *b) {
  for (int j = n0; j < n0 + n; j += GEMM_NR) {
    const real *src = (const real *)dy->data + pixel * dy->ldc + j;
    int lanes = MIN(GEMM_NR, dy->ldc - j);
    for (int i = 0; i < pixels; i++, src += dy->ldc, b += GEMM_NR)
      for (int lane = 0; lane < GEMM_NR; lane += COPY_STEP) {
        if (lane < lanes)
          memcpy(b + lane, src + lane, COPY_STEP * sizeof *b);
        else
          memset(b + lane, 0, COPY_STEP * sizeof *b);
      }
  }
}

// One slice of a tile: its sum over some pixels. a [GEMM_KC, a_pitch] and b [GEMM_KC, partial_pitch] are this thread's.
static void sum_slice(const WgradSplitK *g, int tile, int slice, real *partial, real *a, real *b) {
  int m0 = tile / g->tiles_n * g->tile_rows, n0 = tile % g->tiles_n * TILE_COLUMNS, pair = 0;
  int m = MIN(g->tile_rows, g->m - m0), n = MIN(TILE_COLUMNS, g->n - n0);
  while (slice >= g->slices[pair]) slice -= g->slices[pair++];
  const Tensor *x = &g->x[pair], *dy = &g->dy[pair];
  size_t pixels = (size_t)MIN(rows(x), rows(dy)) * dy->h * dy->w;
  size_t first = MIN(slice * g->slice_k, pixels), last = MIN(first + g->slice_k, pixels);
  memset(partial, 0, partial_size(g) * sizeof *partial);
  for (size_t pixel = first; pixel < last; pixel += GEMM_KC) {
    int k = (int)MIN((size_t)GEMM_KC, last - pixel);
    OP(im2col)(x, &g->im2col[pair], pixel, k, m0, m, a, g->a_pitch);
    for (int i = 0; i < k; i++)
      for (int j = m; j < round_up(m, GEMM_MR); j++) a[(size_t)i * g->a_pitch + j] = 0;
    pack_dy(dy, pixel, k, n0, n, b);
    OP(gemm_columns)(m, n, k, a, g->a_pitch, b, (size_t)k * GEMM_NR, partial, g->partial_pitch);
  }
}

// The split-K reduction of a tile, its columns column … column + WRITE_COLUMNS - 1: adds up the slices and writes rows
// of dw, as long as the tile is high. transposed [WRITE_COLUMNS, tile_rows] is this thread's.
static void write_columns(const WgradSplitK *g, int tile, int column, real *partial, real *transposed) {
  const FilterGrad *out = g->out;
  const real *scale = out->scale;
  int m0 = tile / g->tiles_n * g->tile_rows, n0 = tile % g->tiles_n * TILE_COLUMNS + column;
  int m = MIN(g->tile_rows, g->m - m0), n = MIN(WRITE_COLUMNS, g->n - n0);
  real *sum = partial + column;
  for (int slice = 1; slice < g->all_slices; slice++)
    for (int i = 0; i < m; i++) {
      size_t at = (size_t)i * g->partial_pitch;
      for (int j = 0; j < n; j++) sum[at + j] += sum[slice * partial_size(g) + at + j];
    }
  OP(transpose)(m, n, sum, g->partial_pitch, transposed, g->tile_rows);
  for (int j = 0; j < n; j++, transposed += g->tile_rows) {
    real factor = scale ? scale[n0 + j] : 1;
    for (int len, k = m0; k < m0 + m; k += len) {
      int lane = k % g->c;
      real *dw = (real *)out->dw.data + ((size_t)(n0 + j) * g->m + k - lane) / g->c * out->dw.ldc + lane;
      len = MIN(g->c - lane, m0 + m - k);
      for (int i = 0; i < len; i++) dw[i] = (out->accumulate ? dw[i] : 0) + factor * transposed[k - m0 + i];
      if (lane + len == g->c) memset(dw + len, 0, (out->dw.ldc - g->c) * sizeof *dw);
    }
  }
}

// db[k] (+)= Σ dy, in double: one sum over all pixels would round each of them to the ulp of the sum.
static void add_columns(Device *dev, int pairs, const Tensor *dy, real *db, bool accumulate) {
  if (dev->measuring) return;
  int channels = dy->c;
#pragma omp parallel for schedule(static)
  for (int c = 0; c < channels; c += WRITE_COLUMNS) {
    int n = MIN(WRITE_COLUMNS, channels - c), lanes = MIN(WRITE_COLUMNS, dy->ldc - c);
    double sum[WRITE_COLUMNS] = {0};
    for (int i = 0; i < pairs; i++) {
      size_t pixels = (size_t)rows(&dy[i]) * dy[i].h * dy[i].w;
      const real *from = (const real *)dy[i].data + c;
      for (size_t pixel = 0; pixel < pixels; pixel++, from += dy[i].ldc)
        for (int j = 0; j < lanes; j += COPY_STEP)
          for (int k = 0; k < COPY_STEP; k++) sum[j + k] += from[j + k];
    }
    for (int j = 0; j < n; j++) db[c + j] = (accumulate ? db[c + j] : 0) + (real)sum[j];
  }
}

static void compute(Device *dev, WgradSplitK *g) {
  CHECK(g->pairs <= MAX_PAIRS);
  g->tiles_m = (g->m + TILE_ROWS - 1) / TILE_ROWS;
  g->tiles_n = (g->n + TILE_COLUMNS - 1) / TILE_COLUMNS;
  g->tile_rows = round_up((g->m + g->tiles_m - 1) / g->tiles_m, ROW_STEP);
  g->a_pitch = round_up(g->tile_rows + IM2COL_SLACK, 16) | 16; // off the powers of two
  g->partial_pitch = round_up(MIN(g->n, TILE_COLUMNS), GEMM_NR);
  int tiles = g->tiles_m * g->tiles_n, threads = omp_get_max_threads();
  size_t pixels = 0, parts = (size_t)((g->m + TASK_ROWS - 1) / TASK_ROWS) * g->tiles_n;
  for (int i = 0; i < g->pairs; i++) pixels += tensor_pixels(&g->dy[i]);
  g->slice_k = MAX((size_t)MIN_SLICE_K, (pixels * parts / TASKS + GEMM_KC) / GEMM_KC * GEMM_KC);
  for (int i = 0; i < g->pairs; i++) {
    g->slices[i] = (int)(tensor_pixels(&g->dy[i]) / g->slice_k + 1);
    g->all_slices += g->slices[i];
  }
  size_t a_size = (size_t)GEMM_KC * g->a_pitch, b_size = (size_t)GEMM_KC * g->partial_pitch;
  bool single = g->all_slices == 1;
  size_t all_partial = (size_t)(single ? threads : tiles * g->all_slices) * partial_size(g);
  real *workspace = device_workspace(dev, (all_partial + threads * (a_size + b_size)) * sizeof *workspace);
  if (!workspace) return;
  g->partial = workspace + threads * (a_size + b_size);
#pragma omp parallel num_threads(threads) if (pixels * g->m * g->n >= GEMM_PARALLEL_WORK)
  {
    real *a = workspace + omp_get_thread_num() * (a_size + b_size), *b = a + a_size;
#pragma omp for schedule(dynamic)
    for (int task = 0; task < tiles * g->all_slices; task++) {
      int tile = task / g->all_slices;
      real *partial = g->partial + (single ? omp_get_thread_num() : task) * partial_size(g);
      sum_slice(g, tile, task % g->all_slices, partial, a, b);
      for (int j = 0; single && j < g->partial_pitch; j += WRITE_COLUMNS) write_columns(g, tile, j, partial, a);
    }
#pragma omp for schedule(static) collapse(2)
    for (int tile = 0; tile < (single ? 0 : tiles); tile++)
      for (int j = 0; j < g->partial_pitch; j += WRITE_COLUMNS)
        write_columns(g, tile, j, g->partial + (size_t)tile * g->all_slices * partial_size(g), a);
  }
}

void OP(conv_wgrad)(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy,
                    const FilterGrad *out) {
  const Tensor *dw = &out->dw;
  WgradSplitK g = {.pairs = pairs, .x = x, .dy = dy, .out = out, .c = dw->c, .n = dw->n};
  g.m = dw->h * dw->w * dw->c;
  CHECK(pairs <= MAX_PAIRS && dw->dtype == REAL_DTYPE && dw->ldc == channel_pitch(dw->c));
  for (int i = 0; i < pairs; i++) {
    CHECK(dy[i].h == (x[i].h + 2 * conv->pad - dw->h) / conv->stride + 1);
    CHECK(dy[i].w == (x[i].w + 2 * conv->pad - dw->w) / conv->stride + 1);
    CHECK(x[i].c == dw->c && x[i].ldc == dw->ldc && dy[i].c == dw->n && x[i].n == dy[i].n);
    CHECK(dy[i].ldc == channel_pitch(dw->n));
    CHECK(x[i].dtype == REAL_DTYPE && dy[i].dtype == REAL_DTYPE);
    g.im2col[i] = im2col_forward(conv, dw, &dy[i]);
  }
  compute(dev, &g);
  if (out->db) add_columns(dev, pairs, dy, out->db, out->accumulate);
}

void OP(bias_grad)(Device *dev, const Tensor *dy, void *db, bool accumulate) {
  add_columns(dev, 1, dy, db, accumulate);
}
