// Catches bottlenecks in one pass (conv_bottleneck) with other bits than their convolutions one by one.
//
// On images of any size: narrower than a strip, one pixel wider, strips along either side, odd numbers of rows, blocks
// that begin in the middle of a strip or take several (by how many multiprocessors are granted), with a projection and
// without, NaN. test_conv*.c hold the convolutions against the CPU's.
#include "test/harness/gpu_conv.h"

enum { MID = 64, OUT = 256 };
static const int shapes[][3] = {{1, 1, 1},   {1, 2, 3},     {3, 3, 2},    {2, 5, 61},   {1, 62, 9},  {1, 7, 62},
                                {1, 4, 63},  {2, 64, 63},   {1, 125, 40}, {1, 1, 200},  {1, 200, 1}, {2, 33, 124},
                                {1, 8, 125}, {1, 100, 152}, {4, 56, 56},  {5, 13, 190}, {1, 301, 62}};

typedef struct Operands {
  TensorPair x, w[BOTTLENECK_CONVS], bias[BOTTLENECK_CONVS];
  Bottleneck b;
} Operands;

static Operands operands(DType dtype, const int shape[3], bool projected, uint64_t seed) {
  const int c = projected ? MID : OUT;
  const int dims[BOTTLENECK_CONVS][3] = {{OUT, 1, c}, {MID, 1, c}, {MID, 3, MID}, {OUT, 1, MID}};
  Operands o = {.x = pair_random(dtype, shape[0], shape[1], shape[2], c, 1, seed)};
  for (int i = 0; i < BOTTLENECK_CONVS; i++) {
    const int k = dims[i][0], taps = dims[i][1], in = dims[i][2];
    o.w[i] = pair_random(dtype, k, taps, taps, in, 1.4 / sqrt(taps * taps * in), seed + 1 + (uint64_t)i);
    o.bias[i] = pair_random(F32, 1, 1, 1, k, 0.2, seed + 11 + (uint64_t)i);
    if (i == BOTTLENECK_PROJECT && !projected) continue;
    o.b.w[i] = o.w[i].gpu;
    o.b.bias[i] = i == BOTTLENECK_MIDDLE && shape[1] % 2 ? NULL : o.bias[i].gpu.data;
  }
  return o;
}

static void convolve(const Mode *m, const Operands *o, int which, const Tensor *x, const Tensor *addend,
                     const Tensor *y) {
  const Conv conv = {1, which == BOTTLENECK_MIDDLE};
  const Dest to = {.t = *y, .relu = which != BOTTLENECK_PROJECT, .bias = o->b.bias[which], .addend = addend};
  RUN_ON_GPU(m, conv_forward, &conv, 1, x, &o->w[which].gpu, &to);
}

static float *one_by_one(const Mode *m, const Operands *o) {
  const Tensor *x = &o->x.gpu;
  TensorPair t[BOTTLENECK_CONVS];
  for (int i = 0; i < BOTTLENECK_CONVS; i++) t[i] = pair_poisoned(m->dtype, x->n, x->h, x->w, o->w[i].gpu.n);
  const bool projected = o->b.w[BOTTLENECK_PROJECT].n;
  if (projected) convolve(m, o, BOTTLENECK_PROJECT, x, NULL, &t[BOTTLENECK_PROJECT].gpu);
  convolve(m, o, BOTTLENECK_REDUCE, x, NULL, &t[BOTTLENECK_REDUCE].gpu);
  convolve(m, o, BOTTLENECK_MIDDLE, &t[BOTTLENECK_REDUCE].gpu, NULL, &t[BOTTLENECK_MIDDLE].gpu);
  convolve(m, o, BOTTLENECK_EXPAND, &t[BOTTLENECK_MIDDLE].gpu, projected ? &t[BOTTLENECK_PROJECT].gpu : x,
           &t[BOTTLENECK_EXPAND].gpu);
  float *values = gpu_fetch_floats(&t[BOTTLENECK_EXPAND].gpu);
  for (int i = 0; i < BOTTLENECK_CONVS; i++) pair_free(&t[i]);
  return values;
}

static float *at_once(const Mode *m, const Operands *o, int granted) {
  Device *gpu = gpu_device();
  TensorPair y = pair_poisoned(m->dtype, o->x.gpu.n, o->x.gpu.h, o->x.gpu.w, OUT);
  gpu->granted = granted;
  RUN_ON_GPU(m, conv_bottleneck, &o->b, &o->x.gpu, &y.gpu);
  gpu->granted = gpu->multiprocessors;
  pair_check_guards(&y, false);
  float *values = gpu_fetch_floats(&y.gpu);
  pair_free(&y);
  return values;
}

static void check(Device *gpu, const Mode *m, const int shape[3], bool projected, uint64_t seed) {
  Operands o = operands(m->dtype, shape, projected, seed);
  gpu->conv_rung = m->rung;
  const bool fits = gpu->ops->conv_bottlenecks(gpu, &o.b, &o.x.gpu);
  gpu->conv_rung = NULL;
  EXPECT(fits == (m->dtype != F32));
  for (int nan = 0; fits && nan < 2; nan++) {
    if (nan) device_upload(gpu, (char *)o.x.gpu.data + tensor_bytes(&o.x.gpu) / 2 / 16 * 16, (uint16_t[]){0x7fff}, 2);
    float *want = one_by_one(m, &o);
    const int granted[] = {gpu->multiprocessors, 1, 3, gpu->multiprocessors};
    for (int k = 0; k < COUNT(granted); k++) {
      float *got = at_once(m, &o, granted[k]);
      const size_t n = tensor_pixels(&o.x.gpu) * OUT;
      size_t wrong = 0, first = n;
      for (size_t i = 0; i < n; i++)
        if (memcmp(&want[i], &got[i], sizeof *got) && !wrong++) first = i;
      if (wrong)
        printf("  type %d, %d x %d x %d, projected %d, %d granted, NaN %d: %zu of %zu, first at %zu: %g, not %g\n",
               m->dtype, shape[0], shape[1], shape[2], projected, granted[k], nan, wrong, n, first, got[first],
               want[first]);
      EXPECT(!wrong);
      free(got);
    }
    free(want);
  }
  pair_check_guards(&o.x, false);
  pair_free(&o.x);
  for (int i = 0; i < BOTTLENECK_CONVS; i++) {
    pair_free(&o.w[i]);
    pair_free(&o.bias[i]);
  }
}

TEST_TIER(cuda_conv_bottleneck_is_its_convolutions, 1) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  Mode modes[MAX_MODES];
  const int num_modes = find_modes(gpu, WGMMA, modes);
  if (!num_modes) return test_skip("rung 05 needs a Hopper GPU, sm_90a");
  for (int i = 0; i < num_modes; i++)
    for (int j = 0; j < 2 * COUNT(shapes); j++)
      check(gpu, &modes[i], shapes[j / 2], j % 2, (uint64_t)(1000 * i + 20 * j));
}

// Other shapes are left to the convolutions.
TEST(cuda_conv_bottleneck_shapes) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  const Tensor x = tensor(BF16, 1, 8, 8, OUT);
  const Bottleneck right = {.w = {[BOTTLENECK_REDUCE] = tensor(BF16, MID, 1, 1, OUT),
                                  [BOTTLENECK_MIDDLE] = tensor(BF16, MID, 3, 3, MID),
                                  [BOTTLENECK_EXPAND] = tensor(BF16, OUT, 1, 1, MID)}};
  EXPECT(gpu->ops->conv_bottlenecks(gpu, &right, &x) == gpu->wgmma);
  const Tensor others[] = {tensor(BF16, 128, 1, 1, OUT), tensor(BF16, MID, 5, 5, MID), tensor(BF16, 512, 1, 1, MID)};
  for (int i = 0; i < COUNT(others); i++) {
    Bottleneck b = right;
    b.w[BOTTLENECK_REDUCE + i] = others[i];
    EXPECT(!gpu->ops->conv_bottlenecks(gpu, &b, &x));
  }
  const Tensor narrow = tensor(BF16, 1, 8, 8, 128), exact = tensor(F32, 1, 8, 8, OUT);
  EXPECT(!gpu->ops->conv_bottlenecks(gpu, &right, &narrow) && !gpu->ops->conv_bottlenecks(gpu, &right, &exact));
}
