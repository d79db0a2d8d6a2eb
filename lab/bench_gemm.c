// Benchmarks the CPU reference's convolutions against OpenBLAS.
//
// For each layer, forward, dgrad and wgrad are checked against im2col + sgemm (col2im for dgrad), then timed in turns
// with the sgemm alone: OpenBLAS is timed without im2col, ours with it, and both do the same multiplications. OpenBLAS
// is opened at run time, only for this comparison; the kernels it should use are selected explicitly, because it falls
// back to slow ones on processors newer than itself. Rates are medians over rounds, the ratio is the median of each
// round's ratio, because the load of the machine varies.
#include <dlfcn.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/cli.h"
#include "base/clock.h"
#include "base/machine.h"
#include "base/output.h"
#include "base/rng.h"
#include "base/threads.h"
#include "cpu/conv/gemm.h"

typedef void Sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda,
                   const float *b, int ldb, float beta, float *c, int ldc);
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 }; // values from cblas.h

typedef struct GemmLayer {
  const char *name;
  int n, h, w, c, k, taps, stride, pad;
} GemmLayer;

static const GemmLayer layers[] = {
    // a small network on 128 × 128 canvases, batch 8
    {"tiny stem 7x7/2", 8, 128, 128, 3, 32, 7, 2, 3},
    {"tiny stem 3x3/2", 8, 128, 128, 3, 32, 3, 2, 1},
    {"tiny res 3x3", 8, 32, 32, 32, 32, 3, 1, 1},
    {"tiny res 3x3/2", 8, 32, 32, 32, 64, 3, 2, 1},
    {"tiny res 1x1/2", 8, 32, 32, 32, 64, 1, 2, 0},
    {"tiny p2 3x3", 8, 32, 32, 64, 64, 3, 1, 1},
    {"tiny p3 3x3", 8, 16, 16, 64, 64, 3, 1, 1},
    {"tiny p5 3x3", 8, 4, 4, 64, 64, 3, 1, 1},
    {"tiny lateral 1x1", 8, 16, 16, 128, 64, 1, 1, 0},
    {"tiny rpn 1x1", 8, 32, 32, 64, 15, 1, 1, 0},
    {"tiny fc6", 256, 7, 7, 64, 256, 7, 1, 0},
    {"tiny fc7", 256, 1, 1, 256, 256, 1, 1, 0},
    {"tiny mask 3x3", 64, 14, 14, 64, 64, 3, 1, 1},
    {"tiny mask logits", 64, 28, 28, 64, 4, 1, 1, 0},
    // R50-FPN on 256 × 256, batch 1
    {"r50 stem 7x7/2", 1, 256, 256, 3, 64, 7, 2, 3},
    {"r50 res2 1x1", 1, 64, 64, 256, 64, 1, 1, 0},
    {"r50 res2 3x3", 1, 64, 64, 64, 64, 3, 1, 1},
    {"r50 res3 3x3", 1, 32, 32, 128, 128, 3, 1, 1},
    {"r50 res4 1x1", 1, 16, 16, 256, 1024, 1, 1, 0},
    {"r50 res4 3x3", 1, 16, 16, 256, 256, 3, 1, 1},
    {"r50 res5 3x3", 1, 8, 8, 512, 512, 3, 1, 1},
    {"r50 p2 3x3", 1, 64, 64, 256, 256, 3, 1, 1},
    {"r50 fc6", 64, 7, 7, 256, 1024, 7, 1, 0},
    {"r50 mask 3x3", 16, 14, 14, 256, 256, 3, 1, 1},
};

typedef enum Direction { FORWARD, DGRAD, WGRAD, DIRECTIONS } Direction;
static const char *direction_names[] = {"forward", "dgrad", "wgrad"};

// A layer's tensors, and the operands for OpenBLAS: unrolled [pixels, taps · c], the others unpadded
typedef struct GemmCase {
  const GemmLayer *layer;
  Conv conv;
  Tensor x, w, y, dy, dx, dw;
  float *unrolled, *filter, *pixels;
  int m, n, k; // pixels of y, output channels, taps · c
} GemmCase;

static Tensor filled(Device *dev, Tensor t, uint64_t key) {
  t.data = device_alloc(dev, tensor_bytes(&t));
  if (!t.data) die(EXIT_RUN, "out of memory");
  for (size_t i = 0; i < tensor_elements(&t); i++)
    if ((int)(i % t.ldc) < t.c) ((float *)t.data)[i] = 2 * rng_uniform(key, i) - 1;
  return t;
}

// Copies t's pixels without padding lanes, to or from `packed`.
static float *pack(const Tensor *t) {
  float *packed = xmalloc(tensor_pixels(t) * t->c * sizeof *packed);
  for (size_t i = 0; i < tensor_pixels(t); i++)
    memcpy(packed + i * t->c, (const float *)t->data + i * t->ldc, t->c * sizeof *packed);
  return packed;
}

// Walks the elements of the unrolled x: unrolled = x, or, backward, x (without padding lanes) += unrolled.
static void unroll(const GemmCase *c, float *x, float *unrolled, bool backward) {
  const GemmLayer *l = c->layer;
  for (int n = 0; n < l->n; n++)
    for (int oy = 0; oy < c->y.h; oy++)
      for (int ox = 0; ox < c->y.w; ox++)
        for (int tap = 0; tap < l->taps * l->taps; tap++, unrolled += l->c) {
          int y = oy * l->stride - l->pad + tap / l->taps, x0 = ox * l->stride - l->pad + tap % l->taps;
          bool inside = y >= 0 && y < l->h && x0 >= 0 && x0 < l->w;
          float *at = x + (inside ? (((size_t)n * l->h + y) * l->w + x0) * l->c : 0);
          for (int i = 0; i < l->c; i++) {
            if (!backward)
              unrolled[i] = inside ? at[i] : 0;
            else if (inside)
              at[i] += unrolled[i];
          }
        }
}

static GemmCase case_new(Device *dev, const GemmLayer *l) {
  GemmCase c = {.layer = l, .conv = {l->stride, l->pad}};
  int h = (l->h + 2 * l->pad - l->taps) / l->stride + 1, w = (l->w + 2 * l->pad - l->taps) / l->stride + 1;
  c.x = filled(dev, tensor(F32, l->n, l->h, l->w, l->c), 1);
  c.w = filled(dev, tensor(F32, l->k, l->taps, l->taps, l->c), 2);
  c.y = filled(dev, tensor(F32, l->n, h, w, l->k), 3);
  c.dy = filled(dev, c.y, 4);
  c.dx = filled(dev, c.x, 5);
  c.dw = filled(dev, c.w, 6);
  c.m = l->n * h * w;
  c.n = l->k;
  c.k = l->taps * l->taps * l->c;
  c.unrolled = xmalloc((size_t)c.m * c.k * sizeof(float));
  float *x = pack(&c.x);
  unroll(&c, x, c.unrolled, false);
  free(x);
  c.filter = pack(&c.w);
  c.pixels = pack(&c.dy);
  return c;
}

static void case_free(Device *dev, GemmCase *c) {
  Tensor all[] = {c->x, c->w, c->y, c->dy, c->dx, c->dw};
  for (int i = 0; i < COUNT(all); i++) device_free(dev, all[i].data);
  free(c->unrolled);
  free(c->filter);
  free(c->pixels);
}

static void run_ours(Device *dev, const GemmCase *c, Direction d) {
  Dest y = {.t = c->y}, dx = {.t = c->dx};
  FilterGrad dw = {.dw = c->dw};
  if (d == FORWARD) dev->ops->conv_forward(dev, &c->conv, 1, &c->x, &c->w, &y);
  if (d == DGRAD) dev->ops->conv_dgrad(dev, &c->conv, 1, &c->dy, &c->w, &dx);
  if (d == WGRAD) dev->ops->conv_wgrad(dev, &c->conv, 1, &c->x, &c->dy, &dw);
}

// result: forward [m, n], dgrad the unrolled [m, k], wgrad [n, k].
static void run_peer(Sgemm *sgemm, const GemmCase *c, Direction d, float *result) {
  int m = c->m, n = c->n, k = c->k;
  if (d == FORWARD) sgemm(ROW_MAJOR, NO_TRANS, TRANS, m, n, k, 1, c->unrolled, k, c->filter, k, 0, result, n);
  if (d == DGRAD) sgemm(ROW_MAJOR, NO_TRANS, NO_TRANS, m, k, n, 1, c->pixels, n, c->filter, k, 0, result, k);
  if (d == WGRAD) sgemm(ROW_MAJOR, TRANS, NO_TRANS, n, k, m, 1, c->pixels, n, c->unrolled, k, 0, result, k);
}

// Values are below 1 in magnitude and random in sign: errors of a sum of `terms` stay far below 1e-6 · terms; wrong
// terms do not.
static void verify(const GemmCase *c, Direction d, const float *peer) {
  const Tensor *t = d == FORWARD ? &c->y : d == DGRAD ? &c->dx : &c->dw;
  size_t elements = tensor_pixels(t) * t->c;
  float *ours = pack(t), *folded = NULL;
  if (d == DGRAD) {
    folded = xcalloc(elements, sizeof *folded);
    unroll(c, folded, (float *)peer, true);
    peer = folded;
  }
  double terms = d == FORWARD ? c->k : d == DGRAD ? (double)c->n * c->layer->taps * c->layer->taps : c->m;
  for (size_t i = 0; i < elements; i++)
    if (!(fabs((double)ours[i] - peer[i]) <= 1e-6 * (terms + 8)))
      die(EXIT_RUN, "%s %s: element %zu is %g, OpenBLAS has %g", c->layer->name, direction_names[d], i, ours[i],
          peer[i]);
  free(ours);
  free(folded);
}

static int compare_double(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
static double median(double *v, int n) {
  qsort(v, n, sizeof *v, compare_double);
  return v[n / 2];
}

enum { MAX_ROUNDS = 101 };

static void bench(Device *dev, Sgemm *sgemm, const GemmCase *c, Direction d, int rounds, bool json) {
  dev->workspace_bytes = 0;
  dev->measuring = true;
  run_ours(dev, c, d);
  dev->measuring = false;
  Err err;
  if (!device_reserve_workspace(dev, &err)) die(EXIT_RUN, "%s", err.msg);
  float *result = xmalloc((size_t)MAX(c->m, c->n) * MAX(c->n, c->k) * sizeof *result);
  run_ours(dev, c, d);
  run_peer(sgemm, c, d, result);
  verify(c, d, result);

  double flop = 2.0 * c->m * c->n * c->k, ours[MAX_ROUNDS], peer[MAX_ROUNDS], ratio[MAX_ROUNDS];
  int repeats = (int)(1e9 / flop) + 1; // a few milliseconds a turn
  for (int r = 0; r < rounds; r++) {
    run_ours(dev, c, d); // wakes the threads
    double t0 = now_seconds();
    for (int i = 0; i < repeats; i++) run_ours(dev, c, d);
    double t1 = now_seconds();
    run_peer(sgemm, c, d, result);
    double t2 = now_seconds();
    for (int i = 0; i < repeats; i++) run_peer(sgemm, c, d, result);
    double t3 = now_seconds();
    ours[r] = flop * repeats / (t1 - t0) / 1e9;
    peer[r] = flop * repeats / (t3 - t2) / 1e9;
    ratio[r] = ours[r] / peer[r];
  }
  free(result);
  double us = median(ours, rounds), them = median(peer, rounds), middle = median(ratio, rounds);
  if (!json) {
    printf("%-18s %-8s %6d %5d %6d %8.1f %8.1f  %5.2f  (%.2f … %.2f)\n", c->layer->name, direction_names[d], c->m, c->n,
           c->k, us, them, middle, ratio[0], ratio[rounds - 1]);
    return;
  }
  Record rec = {0};
  record_begin(&rec);
  record_str(&rec, "bench", "gemm");
  record_str(&rec, "layer", c->layer->name);
  record_str(&rec, "op", direction_names[d]);
  record_int(&rec, "m", c->m);
  record_int(&rec, "n", c->n);
  record_int(&rec, "k", c->k);
  record_int(&rec, "threads", omp_get_max_threads());
  record_int(&rec, "rounds", rounds);
  record_num(&rec, "gflops", us);
  record_num(&rec, "openblas_gflops", them);
  record_num(&rec, "ratio", middle);
  record_num(&rec, "ratio_min", ratio[0]);
  record_num(&rec, "ratio_max", ratio[rounds - 1]);
  device_origin(dev, &rec);
  puts(record_end(&rec));
  record_free(&rec);
}

// clang-format off
#define BENCH_GEMM_OPTIONS(X)                                                                                          \
  X(INT, rounds, 15, 1, MAX_ROUNDS, "N", "number of runs of each product")                                             \
  X(STRING, layer, NULL, "TEXT", "only layers with this in their name", .usual = "all layers")                         \
  X(FLAG, json, false, "print one JSON object per line")
// clang-format on

typedef struct BenchGemmOptions {
  OPTION_FIELDS(BENCH_GEMM_OPTIONS)
} BenchGemmOptions;

int main(int argc, char **argv) {
  threads_wait_briefly(argv);
  BenchGemmOptions o = {OPTION_DEFAULTS(BENCH_GEMM_OPTIONS)};
  OPTION_TABLE(table, BenchGemmOptions, BENCH_GEMM_OPTIONS);
  Cli cli = {.usage = "[options]",
             .about = "Times the matrix products of the CPU's convolutions against OpenBLAS.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o};
  cli_parse_or_exit(&cli, argc, argv);
  if (GEMM_VECTOR_BYTES >= 32) setenv("OPENBLAS_CORETYPE", GEMM_VECTOR_BYTES == 64 ? "SkylakeX" : "Haswell", 0);
  setenv("OPENBLAS_THREAD_TIMEOUT", "4", 0); // otherwise its idle threads spin on the cores that ours need
  void *blas = dlopen("libopenblas.so.0", RTLD_NOW);
  if (!blas) die(EXIT_USAGE, "libopenblas.so.0 not found: install OpenBLAS to compare with it");
  Sgemm *sgemm;
  void (*set_threads)(int);
  const char *(*core_name)(void);
  *(void **)&sgemm = dlsym(blas, "cblas_sgemm"); // POSIX's way to convert an object pointer into a function pointer
  *(void **)&set_threads = dlsym(blas, "openblas_set_num_threads");
  *(void **)&core_name = dlsym(blas, "openblas_get_corename");
  if (!sgemm || !set_threads || !core_name) die(EXIT_USAGE, "libopenblas.so.0 lacks an entry: is it OpenBLAS?");
  set_threads(omp_get_max_threads());

  Err err;
  Device *dev = device_open("cpu", &err);
  if (!dev) die(EXIT_RUN, "%s", err.msg);
  if (o.json) commit_warn();
  if (!o.json)
    printf("%-18s %-8s %6s %5s %6s %8s %8s  ratio  (GFLOP/s, %d threads, kernels %s)\n", "layer", "op", "m", "n", "k",
           "ours", "OpenBLAS", omp_get_max_threads(), core_name());
  for (int i = 0; i < COUNT(layers); i++) {
    if (o.layer && !strstr(layers[i].name, o.layer)) continue;
    GemmCase c = case_new(dev, &layers[i]);
    for (Direction d = FORWARD; d < DIRECTIONS; d++) bench(dev, sgemm, &c, d, o.rounds, o.json);
    case_free(dev, &c);
  }
  device_close(dev);
  stdout_close();
  return 0;
}
