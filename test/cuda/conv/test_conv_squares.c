// Catches sums of squares that wgrad tells and that are not those of the gradient that it wrote, and gradients that are
// not finite of which it does not tell.
//
// Compares with the squares of what the GPU wrote, added up on the host in double.
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "test/harness/gpu_conv.h"

typedef struct Layer { // a dense layer of [h, w, c], k outputs
  int images, h, w, c, k;
} Layer;

typedef struct Range {
  int first, end;
} Range;

// Whether the sums of two runs are alike, and those of elements first … end - 1 of dw.
static bool check_sums(const float *dw, Range r, const GradSum *const told[2], int count) {
  long double want = 0;
  bool finite = true;
  for (int i = r.first; i < r.end; i++) {
    want += (long double)dw[i] * dw[i];
    finite &= fabsf(dw[i]) <= FLT_MAX;
  }
  double got = 0;
  bool told_finite = true;
  for (int i = 0; i < count; i++) {
    got += told[0][i].squares;
    told_finite &= told[0][i].finite;
  }
  // Sixteen squares at most are added in float, all others in double.
  const bool near = fabs(got - (double)want) <= 0x1p-20 * (double)want;
  const bool ok =
      told_finite == finite && (!finite || near) && !memcmp(told[0], told[1], (size_t)count * sizeof **told);
  if (!ok) printf("  squares %.9g, finite %d; expected %.9g, %d\n", got, told_finite, (double)want, finite);
  return ok;
}

// dy and x of that size, and one value of dy that is `odd`; on two numbers of multiprocessors.
static void check_layer(DType dtype, const Layer *l, double size, float odd, bool scaled, Range r) {
  Device *gpu = gpu_device();
  const Conv conv = {.stride = 1};
  TensorPair x = pair_random(dtype, l->images, l->h, l->w, l->c, size, 1);
  float *values = xmalloc((size_t)l->images * (size_t)l->k * sizeof *values);
  for (int i = 0; i < l->images * l->k; i++) values[i] = (float)size * (float)((i * 37) % 41 - 20) / 8;
  if (odd != 0) values[l->images * l->k / 2] = odd;
  TensorPair dy = pair_values(dtype, l->images, 1, 1, l->k, values), dw = pair_poisoned(F32, l->k, l->h, l->w, l->c);
  TensorPair scale = pair_random(F32, 1, 1, 1, l->k, 1, 3);
  const int elements = (int)tensor_elements(&dw.gpu), granted = gpu->granted;
  if (r.end > elements || r.end == 0) r.end = elements;
  gpu->tf32 = dtype == F32;
  const int count = gpu->ops->conv_squares(gpu, &conv, &x.gpu, &dw.gpu);
  EXPECT(count > 0);
  GradSum *sums[2] = {NULL, NULL};
  for (int i = 0; i < 2; i++) {
    GradSum *to = device_alloc(gpu, (size_t)count * sizeof *to);
    gpu->granted = i ? granted / 3 : granted;
    const FilterGrad out = {.dw = dw.gpu, .scale = scaled ? scale.gpu.data : NULL, .squares = {to, r.first, r.end}};
    gpu->ops->conv_wgrad(gpu, &conv, 1, &x.gpu, &dy.gpu, &out);
    device_sync(gpu);
    sums[i] = gpu_fetch(to, (size_t)count * sizeof *to);
    device_free(gpu, to);
  }
  gpu->granted = granted;
  gpu->tf32 = false;
  float *written = gpu_fetch_floats(&dw.gpu);
  if (!EXPECT(check_sums(written, r, (const GradSum *const *)sums, count)))
    printf("  %d images [%d, %d, %d], %d outputs, dtype %d, size %g, odd %g, elements %d ... %d\n", l->images, l->h,
           l->w, l->c, l->k, dtype, size, (double)odd, r.first, r.end);
  TensorPair *all[] = {&x, &dy, &dw, &scale};
  for (int i = 0; i < COUNT(all); i++) {
    pair_check_guards(all[i], all[i] != &dw);
    pair_free(all[i]);
  }
  free(sums[0]);
  free(sums[1]);
  free(written);
  free(values);
}

// One tile and more than there are blocks, tiles that are not full, padding, an image and many.
static const Layer layers[] = {
    {64, 1, 1, 512, 512}, {1, 1, 1, 40, 24},      {37, 1, 1, 1001, 130}, {128, 3, 3, 68, 264},
    {7, 5, 5, 3, 70},     {64, 1, 1, 2500, 2300}, {65, 2, 3, 136, 1000},
};

TEST_TIER(cuda_conv_tells_the_squares_of_what_it_writes, 1) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  static const DType types[] = {BF16, F16, F32};
  for (int t = 0; t < COUNT(types); t++)
    for (int i = 0; i < COUNT(layers); i++) {
      const Layer *l = &layers[i];
      if (types[t] == F32 && l->images > 64) continue;
      const int elements = l->k * l->h * l->w * ((l->c + 7) / 8 * 8);
      check_layer(types[t], l, 1, 0, i % 2 == 1, (Range){0});
      check_layer(types[t], l, 1, 0, false, (Range){elements / 3 / 64 * 64, elements / 2 / 64 * 64});
      check_layer(types[t], l, 1, INFINITY, false, (Range){0});
      check_layer(types[t], l, 1, NAN, true, (Range){0});
      if (types[t] == F16) continue;
      check_layer(types[t], l, 1e12, 0, false, (Range){0}); // squares of what fits a float need not
      check_layer(types[t], l, 1e-13, 0, false, (Range){0});
    }
  const Conv conv = {.stride = 1};
  const Tensor images = tensor(BF16, 129, 1, 1, 64), maps = tensor(BF16, 8, 2, 2, 64), dw = tensor(F32, 64, 1, 1, 64);
  EXPECT(gpu->ops->conv_squares(gpu, &conv, &images, &dw) == 0);
  EXPECT(gpu->ops->conv_squares(gpu, &conv, &maps, &dw) == 0);
}
