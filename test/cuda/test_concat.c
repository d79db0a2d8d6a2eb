// Catches concatenation and slices that move a channel to the wrong place.
//
// Concatenation and slice on the GPU against the CPU reference: they move numbers, to the bit.
#include "test/harness/concat_cases.h"
#include "test/harness/gpu.h"

static const DType dtypes[] = {F32, BF16, F16};

typedef struct ConcatTwins {
  int parts, first;
  Twin x[MAX_CONCAT];
} ConcatTwins;
static void run_concat(Device *dev, bool gpu, void *context, const Dest *y) {
  ConcatTwins *a = context;
  Tensor x[MAX_CONCAT];
  for (int i = 0; i < a->parts; i++) x[i] = *twin_side(&a->x[i], gpu);
  dev->ops->concat(dev, a->parts, x, y);
}
static void run_slice(Device *dev, bool gpu, void *context, const Dest *y) {
  ConcatTwins *a = context;
  dev->ops->slice(dev, a->first, twin_side(&a->x[0], gpu), y);
}

static Twin counted(const ConcatCase *k, DType dtype, int c, uint64_t seed) {
  Twin t = twin_random(dtype, k->n, k->h, k->w, c, 1, seed);
  if (k->rows < k->n) twin_rows(&t, k->rows);
  return t;
}

TEST(cuda_concat_and_slice_equal_cpu) {
  if (!gpu_device()) return;
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int i = 0; i < COUNT(concat_cases); i++) {
      const ConcatCase *k = &concat_cases[i];
      ConcatTwins a = {.parts = k->parts};
      int channels = 0;
      for (int p = 0; p < k->parts; channels += k->c[p++]) a.x[p] = counted(k, dtypes[d], k->c[p], (uint64_t)p + 1);
      Twin whole = counted(k, dtypes[d], channels, 9);
      twin_check_dests(run_concat, &a, &whole, NULL, 0, 10);
      ConcatTwins cut = {.x = {whole}};
      for (int p = 0; p < k->parts; cut.first += k->c[p++]) twin_check_dests(run_slice, &cut, &a.x[p], NULL, 0, 20);
      for (int p = 0; p < k->parts; p++) {
        twin_check_guards(&a.x[p], true);
        twin_free(&a.x[p]);
      }
      twin_check_guards(&whole, true);
      twin_free(&whole);
    }
}
