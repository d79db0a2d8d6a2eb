// Forward and dgrad as implicit GEMM. The filter is packed once; each thread then takes tiles of the result, writes a
// block of the im2col matrix at a time into its cache, and takes the finished tile through the Dest. wgrad is in
// wgrad.c.
#include <omp.h>
#include "cpu/conv/gemm.h"
#include "cpu/conv/im2col.h"
#include "cpu/conv/winograd.h"
#include "cpu/dest.h"
#include "cpu/reference.h"

enum { TILE_ROWS = 8 * GEMM_MR, TILE_COLUMNS = 512, MAX_PAIRS = 8, PITCH_STEP = MAX(GEMM_NR, 8) };

// One phase of all pairs: [rows, k] · [k, n], k = taps · channels.
typedef struct ImplicitGemm {
  int pairs;
  const Tensor *in, *w;
  const Dest *out;
  bool packed;     // the filter comes as filter_pack wrote it
  bool backward;   // w's n are the channels and its c the columns, rather than the other way round
  int channels, n; // of in; of out
  int k, block;    // K, and how much of it is multiplied at a time
  int tile_rows;   // any number gives the same bits
  Im2col im2col[MAX_PAIRS];
  size_t rows[MAX_PAIRS], tiles[MAX_PAIRS];
  size_t all_rows, all_tiles;
  real *filter; // [blocks][panels][block][GEMM_NR]
} ImplicitGemm;

static real *filter_panel(const ImplicitGemm *p, int k0, int k, int j) {
  return p->filter + (size_t)k0 * round_up(p->n, GEMM_NR) + (size_t)k * j;
}

// Rows k0 … k0 + k - 1, columns j … of the filter as a matrix [taps · channels, n]. Missing columns become zeros
// because what happens to lie in workspace may be denormal, and slow.
static void pack_panel(const ImplicitGemm *p, int k0, int k, int j) {
  const Tensor *w = p->w;
  int columns = MIN(GEMM_NR, p->n - j);
  real *dst = filter_panel(p, k0, k, j);
  if (columns < GEMM_NR) memset(dst, 0, (size_t)k * GEMM_NR * sizeof *dst);
  size_t pitch = (size_t)w->h * w->w * w->ldc; // from one of w's rows to the next
  for (int len, end = k0 + k; k0 < end; k0 += len, dst += (size_t)len * GEMM_NR) {
    int tap = im2col_filter_tap(&p->im2col[0], k0 / p->channels, w->w), lane = k0 % p->channels;
    const real *src = (const real *)w->data + (size_t)tap * w->ldc;
    len = MIN(p->channels - lane, end - k0);
    if (!p->backward)
      OP(transpose)(columns, len, src + j * pitch + lane, pitch, dst, GEMM_NR);
    else
      for (int i = 0; i < len; i++) memcpy(dst + i * GEMM_NR, src + (lane + i) * pitch + j, columns * sizeof *dst);
  }
}

// Whether a Dest is bias, residual and ReLU at most, so that a forward tile's elements need nothing but their places.
static bool is_plain(const Dest *d) {
  const Tensor *a = d->addend;
  return !d->accumulate && !d->mask && (!a || (a->h == d->t.h && a->w == d->t.w));
}

static GemmOut tile_out(const Dest *d, size_t row, int j) {
  const size_t at = row * d->t.ldc + j;
  return (GemmOut){.to = (real *)d->t.data + at,
                   .addend = d->addend ? (const real *)d->addend->data + at : NULL,
                   .bias = d->bias ? (const real *)d->bias + j : NULL,
                   .pitch = d->t.ldc,
                   .relu = d->relu};
}

// Rows row … row + m - 1, columns j … j + n - 1 of one pair's result: mainloop over K, then the epilogue. a and c are
// this thread's.
static void compute_tile(const ImplicitGemm *p, int pair, size_t row, int m, int j, int n, real *a, real *c) {
  const Im2col *im2col = &p->im2col[pair];
  const Dest *out = &p->out[pair];
  const int last = (p->k - 1) / p->block * p->block; // where the last block begins
  const bool plain = p->packed && is_plain(out) && n % GEMM_LANES == 0;
  int pitch = round_up(n, PITCH_STEP), padding = round_up(m, GEMM_MR) - m;
  if (!plain || last) memset(c, 0, (size_t)(m + padding) * pitch * sizeof *c);
  memset(a + (size_t)m * GEMM_PITCH, 0, (size_t)padding * GEMM_PITCH * sizeof *a);
  for (int k0 = 0; k0 < p->k; k0 += p->block) {
    int k = MIN(p->block, p->k - k0);
    OP(im2col)(&p->in[pair], im2col, row, m, k0, k, a, GEMM_PITCH);
    if (plain && k0 == last) {
      const GemmOut to = tile_out(out, row, j);
      OP(gemm_rows_out)(m, n, k, a, filter_panel(p, k0, k, j), (size_t)k * GEMM_NR, last ? c : NULL, pitch, &to);
      return;
    }
    OP(gemm_rows)(m, n, k, a, filter_panel(p, k0, k, j), (size_t)k * GEMM_NR, c, pitch);
  }
  const real *bias = out->bias;
  int lanes = MIN(pitch, out->t.ldc - j);
  Position at = im2col_position(im2col, row);
  for (int i = 0; i < m; i++, c += pitch, at = im2col_next(im2col, at)) {
    if (bias)
      for (int lane = 0; lane < n; lane++) c[lane] += bias[j + lane];
    int y = im2col->y.out + im2col->y.out_stride * at.i, x = im2col->x.out + im2col->x.out_stride * at.j;
    dest_write(out, (RowRun){at.n, y, x, j, 1, lanes}, c);
  }
}

static void check_pair(const ImplicitGemm *p, const Conv *conv, int pair) {
  const Tensor *big = p->backward ? &p->out[pair].t : &p->in[pair];
  const Tensor *small = p->backward ? &p->in[pair] : &p->out[pair].t, *w = p->w;
  CHECK(small->h == (big->h + 2 * conv->pad - w->h) / conv->stride + 1);
  CHECK(small->w == (big->w + 2 * conv->pad - w->w) / conv->stride + 1);
  CHECK(big->c == w->c && big->ldc == w->ldc && small->c == w->n && small->ldc == channel_pitch(w->n));
  CHECK(w->ldc == channel_pitch(w->c) && (w->dtype == REAL_DTYPE || (w->dtype == PACKED && !p->backward)) &&
        big->dtype == REAL_DTYPE && small->dtype == REAL_DTYPE);
  Dest unbiased = p->out[pair];
  unbiased.bias = NULL;
  dest_check(&unbiased);
}

// K, and how it is cut.
static void plan_sum(ImplicitGemm *p) {
  p->k = im2col_taps(&p->im2col[0]) * p->channels;
  int blocks = (p->k + GEMM_KC - 1) / GEMM_KC;
  p->block = blocks ? round_up((p->k + blocks - 1) / blocks, 8) : GEMM_KC;
}

// Fills in what depends on the phase: one of a forward convolution, stride² of dgrad.
static void plan_phase(ImplicitGemm *p, const Conv *conv, int phase, int threads) {
  p->all_rows = p->all_tiles = 0;
  for (int i = 0; i < p->pairs; i++) {
    const Tensor *t = &p->out[i].t;
    int h = p->w->h, w = p->w->w, py = phase / conv->stride, px = phase % conv->stride;
    p->im2col[i] = p->backward ? (Im2col){im2col_axis_dgrad(conv, h, t->h, py), im2col_axis_dgrad(conv, w, t->w, px)}
                               : (Im2col){im2col_axis_forward(conv, h, t->h), im2col_axis_forward(conv, w, t->w)};
    p->rows[i] = (size_t)rows(&p->in[i]) * im2col_area(&p->im2col[i]);
    p->all_rows += p->rows[i];
  }
  plan_sum(p);
  p->tile_rows = round_up((int)MIN(p->all_rows / (4 * threads) + 1, TILE_ROWS), GEMM_MR);
  int across = (p->n + TILE_COLUMNS - 1) / TILE_COLUMNS;
  for (int i = 0; i < p->pairs; i++) {
    p->tiles[i] = (p->rows[i] + p->tile_rows - 1) / p->tile_rows * across;
    p->all_tiles += p->tiles[i];
  }
}

// For the threads of a team to share.
static void pack_filter(const ImplicitGemm *p) {
#pragma omp for schedule(static) collapse(2)
  for (int k0 = 0; k0 < p->k; k0 += p->block)
    for (int j = 0; j < p->n; j += GEMM_NR) pack_panel(p, k0, MIN(p->block, p->k - k0), j);
}

static void compute_tile_index(const ImplicitGemm *p, size_t tile, real *a, real *c) {
  int pair = 0, across = (p->n + TILE_COLUMNS - 1) / TILE_COLUMNS;
  while (tile >= p->tiles[pair]) tile -= p->tiles[pair++];
  size_t row = tile / across * p->tile_rows;
  int j = (int)(tile % across) * TILE_COLUMNS;
  compute_tile(p, pair, row, (int)MIN((size_t)p->tile_rows, p->rows[pair] - row), j, MIN(TILE_COLUMNS, p->n - j), a, c);
}

static void compute(Device *dev, ImplicitGemm *p, const Conv *conv) {
  int threads = omp_get_max_threads(), phases = p->backward ? conv->stride * conv->stride : 1;
  p->packed = p->w->dtype == PACKED;
  size_t filter = p->packed ? 0 : (size_t)p->w->h * p->w->w * p->channels * round_up(p->n, GEMM_NR);
  size_t a_size = TILE_ROWS * GEMM_PITCH, c_size = (size_t)TILE_ROWS * round_up(MIN(p->n, TILE_COLUMNS), PITCH_STEP);
  real *workspace = device_workspace(dev, (filter + threads * (a_size + c_size)) * sizeof *workspace);
  if (!workspace) return;
  CHECK(p->pairs <= MAX_PAIRS && conv->stride > 0);
  for (int i = 0; i < p->pairs; i++) check_pair(p, conv, i);
  p->filter = p->packed ? p->w->data : workspace + threads * (a_size + c_size);
  for (int phase = 0; phase < phases; phase++) {
    plan_phase(p, conv, phase, threads);
#pragma omp parallel num_threads(threads) if (p->all_rows * p->n * p->k >= GEMM_PARALLEL_WORK)
    {
      real *a = workspace + omp_get_thread_num() * (a_size + c_size), *c = a + a_size;
      if (!p->packed) pack_filter(p);
#pragma omp for schedule(dynamic)
      for (size_t tile = 0; tile < p->all_tiles; tile++) compute_tile_index(p, tile, a, c);
    }
  }
}

size_t OP(filter_packed_bytes)(Device *dev, const Conv *conv, const Tensor *w) {
  (void)dev;
  const size_t elements = (size_t)w->h * w->w * w->c * round_up(w->n, GEMM_NR);
  return (OP(winograd_fits)(conv, w) ? OP(winograd_elements)(w) : elements) * sizeof(real);
}

void OP(filter_pack)(Device *dev, const Conv *conv, const Tensor *w, void *packed) {
  (void)dev;
  if (OP(winograd_fits)(conv, w)) {
    OP(winograd_pack)(w, packed);
    return;
  }
  ImplicitGemm p = {.w = w, .channels = w->c, .n = w->n, .filter = packed};
  p.im2col[0] = (Im2col){im2col_axis_forward(conv, w->h, 0), im2col_axis_forward(conv, w->w, 0)};
  plan_sum(&p);
#pragma omp parallel
  pack_filter(&p);
}

void OP(conv_forward)(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *w, const Dest *y) {
  if (w->dtype == PACKED && OP(winograd_fits)(conv, w)) {
    OP(winograd_forward)(dev, conv, pairs, x, w, y);
    return;
  }
  compute(dev, &(ImplicitGemm){.pairs = pairs, .in = x, .w = w, .out = y, .channels = w->c, .n = w->n}, conv);
}

int OP(conv_squares)(Device *dev, const Conv *conv, const Tensor *x, const Tensor *dw) {
  (void)dev;
  (void)conv;
  (void)x;
  (void)dw;
  return 0;
}

int OP(conv_moments)(Device *dev, const Conv *conv, const Tensor *x, const Tensor *w, const Tensor *y) {
  (void)dev;
  (void)conv;
  (void)x;
  (void)w;
  (void)y;
  return 0;
}

bool OP(conv_pools)(Device *dev, const Conv *conv, const Pool *pool, const Tensor *x, const Tensor *w) {
  (void)dev;
  (void)conv;
  (void)pool;
  (void)x;
  (void)w;
  return false;
}

int OP(conv_wgrad_share)(Device *dev, const Conv *conv, const Tensor *x, const Tensor *dw) {
  (void)dev;
  (void)conv;
  (void)x;
  (void)dw;
  return 0;
}

bool OP(conv_bottlenecks)(Device *dev, const Bottleneck *b, const Tensor *x) {
  (void)dev;
  (void)b;
  (void)x;
  return false;
}

void OP(conv_bottleneck)(Device *dev, const Bottleneck *b, const Tensor *x, const Tensor *y) {
  (void)dev;
  (void)b;
  (void)x;
  (void)y;
  die_unforeseen("a CPU computes bottlenecks convolution by convolution");
}

// The gradient of a fully connected layer over [h, w] inputs is that of one over [1, 1, h · w · c]. As a convolution it
// would multiply mostly zeros: dy's only pixel lies under one tap of each of dx's.
static bool is_flat(const Conv *conv, const Tensor *w, const Dest *dx) {
  const Tensor *t = &dx->t;
  return w->h * w->w > 1 && t->h == w->h && t->w == w->w && t->c == t->ldc && !conv->pad && !dx->bias &&
         (!dx->addend || (dx->addend->h == t->h && dx->addend->w == t->w));
}

static Tensor flat(const Tensor *t) {
  Tensor f = *t;
  f.h = f.w = 1;
  f.c = f.ldc = t->h * t->w * t->ldc;
  return f;
}

void OP(conv_dgrad)(Device *dev, const Conv *conv, int pairs, const Tensor *dy, const Tensor *w, const Dest *dx) {
  if (pairs == 1 && is_flat(conv, w, dx)) {
    Tensor one = flat(w), addend = dx->addend ? flat(dx->addend) : *w, mask = dx->mask ? flat(dx->mask) : *w;
    Dest to = *dx;
    to.t = flat(&dx->t);
    to.addend = dx->addend ? &addend : NULL;
    to.mask = dx->mask ? &mask : NULL;
    ImplicitGemm p = {.pairs = 1, .in = dy, .w = &one, .out = &to, .backward = true, .channels = one.n, .n = one.c};
    compute(dev, &p, &(Conv){.stride = 1});
    return;
  }
  ImplicitGemm p = {.pairs = pairs, .in = dy, .w = w, .out = dx, .backward = true, .channels = w->n, .n = w->c};
  compute(dev, &p, conv);
}

void OP(filter_shadow)(Device *dev, const Tensor *master, const void *scale, const Tensor *shadow) {
  if (dev->measuring) return;
  CHECK(shadow->dtype == REAL_DTYPE && tensor_elements(shadow) == tensor_elements(master));
  const real *from = master->data;
  real *to = shadow->data;
  size_t len = (size_t)master->h * master->w * master->ldc;
#pragma omp parallel for schedule(static)
  for (int k = 0; k < master->n; k++) {
    real factor = scale ? ((const real *)scale)[k] : 1;
    for (size_t i = k * len; i < (k + 1) * len; i++) to[i] = factor * from[i];
  }
}
