// A tile is 2 × 2 outputs, from 4 × 4 inputs. 16 matrix products, one for each of a tile's frequencies, replace the
// sum over taps: [tiles, c] · [c, n]. Each thread takes a block of tiles: it transforms their inputs (v, in its
// second-level cache), then, a panel of GEMM_NR output channels after the other, multiplies (m) and transforms back
// into the Dest.
#include "cpu/conv/winograd.h"
#include <omp.h>
#include "cpu/conv/gemm.h"
#include "cpu/dest.h"

enum { FREQUENCIES = 16, CHANNELS = 16, MAX_PAIRS = 8, BLOCK_ELEMENTS = 3 << 16 }; // of v: 768 KiB of float

typedef struct Winograd {
  int pairs, pad, n, c, slices; // slices: of c, GEMM_KC each
  const Tensor *in;
  const Dest *out;
  const real *filter; // [panels of n][FREQUENCIES][c][GEMM_NR]
  int block;          // tiles
  size_t tiles[MAX_PAIRS], all;
} Winograd;

typedef struct WinogradTile {
  int pair, n, y, x;
} WinogradTile;

bool OP(winograd_fits)(const Conv *conv, const Tensor *w) {
  return w->h == 3 && w->w == 3 && conv->stride == 1 && w->c % CHANNELS == 0 && w->n % CHANNELS == 0;
}

size_t OP(winograd_elements)(const Tensor *w) { return (size_t)FREQUENCIES * w->c * round_up(w->n, GEMM_NR); }

// G g Gᵀ of one filter and channel, to every `step` elements.
static void transform_filter(const real *g, size_t tap, real *to, size_t step) {
  double rows[4][3];
  for (int s = 0; s < 3; s++) {
    double a = g[s * tap], b = g[(3 + s) * tap], c = g[(6 + s) * tap];
    rows[0][s] = a;
    rows[1][s] = (a + b + c) / 2;
    rows[2][s] = (a - b + c) / 2;
    rows[3][s] = c;
  }
  for (int i = 0; i < 4; i++, to += 4 * step) {
    double a = rows[i][0], b = rows[i][1], c = rows[i][2];
    to[0] = (real)a;
    to[step] = (real)((a + b + c) / 2);
    to[2 * step] = (real)((a - b + c) / 2);
    to[3 * step] = (real)c;
  }
}

void OP(winograd_pack)(const Tensor *w, real *packed) {
  const size_t panel = (size_t)FREQUENCIES * w->c * GEMM_NR, filter = (size_t)9 * w->ldc;
  memset(packed, 0, OP(winograd_elements)(w) * sizeof *packed);
#pragma omp parallel for schedule(static)
  for (int k = 0; k < w->n; k++)
    for (int c = 0; c < w->c; c++)
      transform_filter((const real *)w->data + k * filter + c, (size_t)w->ldc,
                       packed + k / GEMM_NR * panel + (size_t)c * GEMM_NR + k % GEMM_NR, (size_t)w->c * GEMM_NR);
}

// ---- tiles ----------------------------------------------------------------------------------------------------------

static int half(int size) { return (size + 1) / 2; }

static WinogradTile tile_at(const Winograd *p, size_t index) {
  WinogradTile t = {0};
  while (index >= p->tiles[t.pair]) index -= p->tiles[t.pair++];
  const Tensor *y = &p->out[t.pair].t;
  const int across = half(y->w), area = half(y->h) * across;
  t.n = (int)(index / area);
  t.y = (int)(index % area) / across;
  t.x = (int)(index % area) % across;
  return t;
}

static WinogradTile tile_next(const Winograd *p, WinogradTile t) {
  const Tensor *y = &p->out[t.pair].t;
  if (++t.x < half(y->w)) return t;
  t.x = 0;
  if (++t.y < half(y->h)) return t;
  t.y = 0;
  if (++t.n < rows(&p->in[t.pair])) return t;
  t.n = 0;
  do t.pair++;
  while (t.pair < p->pairs && !p->tiles[t.pair]);
  return t;
}

static size_t v_step(const Winograd *p) { return (size_t)p->block * GEMM_PITCH; } // from one frequency to the next

// Bᵀ d B of a tile's 4 × 4 inputs; v: [slices][FREQUENCIES][block][GEMM_PITCH], at this tile.
static void transform_input(const Winograd *p, WinogradTile t, real *v) {
  static const Vec zero;
  const Tensor *x = &p->in[t.pair];
  const real *from[4][4];
  size_t inside[4][4];
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) {
      const int row = 2 * t.y - p->pad + i, column = 2 * t.x - p->pad + j;
      inside[i][j] = row >= 0 && row < x->h && column >= 0 && column < x->w ? ~(size_t)0 : 0;
      from[i][j] = inside[i][j] ? at(x, t.n, row, column) : (const real *)&zero;
    }
  const size_t step = v_step(p);
  for (int c = 0; c < p->c; c += GEMM_LANES) {
    Vec d[4][4];
    for (int j = 0; j < 4; j++) {
      Vec e[4];
      for (int i = 0; i < 4; i++) e[i] = vec_load(from[i][j] + (c & inside[i][j]));
      d[0][j] = e[0] - e[2];
      d[1][j] = e[1] + e[2];
      d[2][j] = e[2] - e[1];
      d[3][j] = e[1] - e[3];
    }
    real *to = v + c / GEMM_KC * FREQUENCIES * step + c % GEMM_KC;
    for (int i = 0; i < 4; i++, to += 4 * step) {
      *(Vec *)to = d[i][0] - d[i][2];
      *(Vec *)(to + step) = d[i][1] + d[i][2];
      *(Vec *)(to + 2 * step) = d[i][2] - d[i][1];
      *(Vec *)(to + 3 * step) = d[i][1] - d[i][3];
    }
  }
}

// Aᵀ m A of a tile's frequencies, each [block, GEMM_NR], at this tile.
static void transform_output(const real *m, size_t step, real to[4][GEMM_NR]) {
  for (int lane = 0; lane < GEMM_NR; lane += GEMM_LANES) {
    Vec s[2][4];
    for (int j = 0; j < 4; j++) {
      Vec e[4];
      for (int i = 0; i < 4; i++) e[i] = vec_load(m + (4 * i + j) * step + lane);
      s[0][j] = e[0] + e[1] + e[2];
      s[1][j] = e[1] - e[2] - e[3];
    }
    for (int i = 0; i < 2; i++) {
      *(Vec *)(to[2 * i] + lane) = s[i][0] + s[i][1] + s[i][2];
      *(Vec *)(to[2 * i + 1] + lane) = s[i][1] - s[i][2] - s[i][3];
    }
  }
}

// The outputs of a tile in channels j … that exist: an odd height or width cuts the last tiles.
static void write_tile(const Winograd *p, WinogradTile t, int j, const real *m) {
  const Dest *out = &p->out[t.pair];
  const real *bias = out->bias;
  const int lanes = MIN(GEMM_NR, p->n - j);
  real v[4][GEMM_NR];
  transform_output(m, (size_t)p->block * GEMM_NR, v);
  for (int i = 0; i < 4; i++) {
    const int y = 2 * t.y + i / 2, x = 2 * t.x + i % 2;
    if (y >= out->t.h || x >= out->t.w) continue;
    if (bias)
      for (int lane = 0; lane < lanes; lane++) v[i][lane] += bias[j + lane];
    dest_write(out, (RowRun){t.n, y, x, j, 1, lanes}, v[i]);
  }
}

static void compute_block(const Winograd *p, size_t first, real *v, real *m) {
  const int tiles = (int)MIN((size_t)p->block, p->all - first);
  const WinogradTile start = tile_at(p, first);
  WinogradTile t = start;
  for (int i = 0; i < tiles; i++, t = tile_next(p, t)) transform_input(p, t, v + (size_t)i * GEMM_PITCH);
  for (int j = 0; j < p->n; j += GEMM_NR) {
    const real *filter = p->filter + (size_t)j * FREQUENCIES * p->c;
    const int columns = MIN(GEMM_NR, p->n - j);
    memset(m, 0, (size_t)FREQUENCIES * p->block * GEMM_NR * sizeof *m);
    for (int f = 0; f < FREQUENCIES; f++)
      for (int s = 0; s < p->slices; s++) {
        const int c0 = s * GEMM_KC, c = MIN(GEMM_KC, p->c - c0);
        OP(gemm_rows)
        (tiles, columns, c, v + (s * FREQUENCIES + f) * v_step(p), filter + ((size_t)f * p->c + c0) * GEMM_NR,
         (size_t)c * GEMM_NR, m + (size_t)f * p->block * GEMM_NR, GEMM_NR);
      }
    t = start;
    for (int i = 0; i < tiles; i++, t = tile_next(p, t)) write_tile(p, t, j, m + i * GEMM_NR);
  }
}

static void check(const Winograd *p, const Tensor *w) {
  for (int i = 0; i < p->pairs; i++) {
    const Tensor *x = &p->in[i], *y = &p->out[i].t;
    CHECK(y->h == x->h + 2 * p->pad - 2 && y->w == x->w + 2 * p->pad - 2);
    CHECK(x->c == p->c && x->ldc >= p->c && y->c == p->n && x->dtype == REAL_DTYPE && y->dtype == REAL_DTYPE);
    CHECK(w->dtype == PACKED);
    Dest unbiased = p->out[i];
    unbiased.bias = NULL;
    dest_check(&unbiased);
  }
}

void OP(winograd_forward)(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *w, const Dest *y) {
  const int threads = omp_get_max_threads();
  Winograd p = {.pairs = pairs, .pad = conv->pad, .n = w->n, .c = w->c, .in = x, .out = y, .filter = w->data};
  p.slices = (p.c + GEMM_KC - 1) / GEMM_KC;
  const int most = MAX(BLOCK_ELEMENTS / (FREQUENCIES * GEMM_PITCH * p.slices) / GEMM_MR, 1) * GEMM_MR;
  const size_t v_size = (size_t)p.slices * FREQUENCIES * most * GEMM_PITCH,
               m_size = (size_t)FREQUENCIES * most * GEMM_NR;
  real *workspace = device_workspace(dev, threads * (v_size + m_size) * sizeof *workspace);
  if (!workspace) return;
  CHECK(pairs <= MAX_PAIRS);
  check(&p, w);
  for (int i = 0; i < pairs; i++) {
    p.tiles[i] = (size_t)rows(&x[i]) * half(y[i].t.h) * half(y[i].t.w);
    p.all += p.tiles[i];
  }
  if (!p.all) return;
  p.block = MIN(most, round_up((int)MIN(p.all / (4 * threads) + 1, 1 << 30), GEMM_MR));
  const size_t blocks = (p.all + p.block - 1) / p.block;
#pragma omp parallel num_threads(threads) if (p.all * FREQUENCIES * p.n * p.c >= GEMM_PARALLEL_WORK)
  {
    real *v = workspace + omp_get_thread_num() * (v_size + m_size), *m = v + v_size;
#pragma omp for schedule(dynamic)
    for (size_t b = 0; b < blocks; b++) compute_block(&p, b * p.block, v, m);
  }
}
