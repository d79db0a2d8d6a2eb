// Catches averages over the wrong pixels or with the wrong divisor, and gradients that do not follow them.
//
// Average pooling on the GPU against the CPU reference. Sums and their order are the same on both, so that F32 has to
// be equal to the bit, and 16 bits to one rounding.
#include "test/harness/avg_pool_cases.h"
#include "test/harness/gpu.h"

static const DType dtypes[] = {F32, BF16, F16};

typedef struct AvgTwins {
  AvgPool pool;
  Twin x, dy;
} AvgTwins;
static void run_forward(Device *dev, bool gpu, void *context, const Dest *y) {
  AvgTwins *a = context;
  dev->ops->avg_pool_forward(dev, &a->pool, twin_side(&a->x, gpu), y);
}
static void run_backward(Device *dev, bool gpu, void *context, const Dest *dx) {
  AvgTwins *a = context;
  dev->ops->avg_pool_backward(dev, &a->pool, twin_side(&a->dy, gpu), dx);
}

static AvgTwins make(const AvgPoolCase *k, DType dtype, uint64_t seed) {
  AvgTwins a = {.pool = k->pool,
                .x = twin_random(dtype, k->n, k->h, k->w, k->c, 1, seed),
                .dy = twin_random(dtype, k->n, k->out_h, k->out_w, k->c, 1, seed + 1)};
  if (k->rows < k->n) twin_rows(&a.x, k->rows);
  if (k->rows < k->n) twin_rows(&a.dy, k->rows);
  return a;
}
static void free_twins(AvgTwins *a) {
  twin_check_guards(&a->x, true);
  twin_check_guards(&a->dy, true);
  twin_free(&a->x);
  twin_free(&a->dy);
}

TEST(cuda_avg_pool_equals_cpu) {
  if (!gpu_device()) return;
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int i = 0; i < COUNT(avg_pool_cases); i++) {
      AvgTwins a = make(&avg_pool_cases[i], dtypes[d], (uint64_t)i * 100);
      Twin y = twin_poisoned_like(&a.dy), dx = twin_poisoned_like(&a.x);
      twin_run(run_forward, &a, &y);
      twin_run(run_backward, &a, &dx);
      bool ok = twin_check(&y, NULL, dtypes[d] == F32 ? 0 : 1);
      ok &= twin_check(&dx, NULL, dtypes[d] == F32 ? 0 : 1);
      if (!ok) printf("  dtype %d, case %d\n", dtypes[d], i);
      twin_check_guards(&y, false);
      twin_check_guards(&dx, false);
      twin_free(&y);
      twin_free(&dx);
      free_twins(&a);
    }
}

TEST(cuda_avg_pool_honours_dest) {
  if (!gpu_device()) return;
  const AvgPoolCase some[] = {{3, 5, 4, 11, 2, {{3, 2, 1}, false}, 3, 2}, {3, 5, 4, 11, 2, {{0, 0, 0}, true}, 3, 3}};
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int i = 0; i < COUNT(some); i++) {
      AvgTwins a = make(&some[i], dtypes[d], 1);
      twin_check_dests(run_forward, &a, &a.dy, NULL, dtypes[d] == F32 ? 0 : 1, 10);
      twin_check_dests(run_backward, &a, &a.x, NULL, dtypes[d] == F32 ? 0 : 1, 20);
      free_twins(&a);
    }
}
