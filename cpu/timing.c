// The CPU's clock and ceilings. Both ceilings are measured: nothing here tells what the chip could do.
#include "nn/timing.h"
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "cpu/conv/gemm.h"

static void mark(Device *dev, Mark *m) {
  (void)dev;
  m->seconds = now_seconds();
}

static double elapsed(Device *dev, const Mark *from, const Mark *to) {
  (void)dev;
  return to->seconds - from->seconds;
}

static void forget(Device *dev, Mark *m) {
  (void)dev;
  *m = (Mark){0};
}

enum { REPEATS = 5, COPY_BYTES = 1 << 27, ROWS = 16 * GEMM_MR, PRODUCTS = 4000 };

// Large enough for no cache; every thread copies its share. The best of several, the first of which touches the pages.
static double copy_speed(void) {
  char *from = xmalloc(COPY_BYTES), *to = xmalloc(COPY_BYTES);
  memset(from, 1, COPY_BYTES);
  double best = 0;
  for (int i = 0; i < REPEATS; i++) {
    double start = now_seconds();
#pragma omp parallel
    {
      size_t threads = (size_t)omp_get_num_threads(), t = (size_t)omp_get_thread_num();
      size_t first = COPY_BYTES / threads * t, end = t + 1 == threads ? COPY_BYTES : COPY_BYTES / threads * (t + 1);
      memcpy(to + first, from + first, end - first);
    }
    best = MAX(best, 2.0 * COPY_BYTES / (now_seconds() - start));
  }
  free(from);
  free(to);
  return best;
}

// Our own product on blocks that stay in the caches of their core, all threads at once: what the convolutions are made
// of, without packing and without waiting for memory.
static double product_speed(void) {
  size_t a = ROWS * GEMM_PITCH, b = GEMM_KC * GEMM_NR, c = ROWS * GEMM_NR;
  float *all = xcalloc((size_t)omp_get_max_threads(), (a + b + c) * sizeof *all);
  double best = 0;
  for (int i = 0; i < REPEATS; i++) {
    int threads = 1;
    double start = now_seconds();
#pragma omp parallel
    {
      float *mine = all + (size_t)omp_get_thread_num() * (a + b + c);
      for (int k = 0; k < PRODUCTS / REPEATS; k++)
        cpu_gemm_rows(ROWS, GEMM_NR, GEMM_KC, mine, mine + a, b, mine + a + b, GEMM_NR);
#pragma omp single
      threads = omp_get_num_threads();
    }
    double flops = 2.0 * ROWS * GEMM_NR * GEMM_KC * (PRODUCTS / REPEATS) * threads;
    best = MAX(best, flops / (now_seconds() - start));
  }
  free(all);
  return best;
}

static void ceiling(Device *dev, Ceiling *c) {
  (void)dev;
  *c = (Ceiling){.bytes = copy_speed()};
  c->flops[F32] = product_speed();
}

const Timing timing_cpu = {.mark = mark, .elapsed = elapsed, .forget = forget, .ceiling = ceiling};
