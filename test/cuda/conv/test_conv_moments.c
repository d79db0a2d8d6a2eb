// Catches moments for batch norm that are not those of the values the convolution wrote.
//
// Compares the moments that a convolution reports for its output (Dest.moments) with those computed on the host from
// the tensor that it wrote: the pixels of each part, and the parts' moments after merging.
#include <math.h>
#include "test/harness/gpu_conv.h"

typedef struct Merged {
  double n, mean, m2;
} Merged;

// A channel's parts [parts, 3, c], merged as cpu/norm_ranks.c does.
static Merged merge(const float *moments, int parts, int channels, int c) {
  Merged all = {0};
  for (int i = 0; i < parts; i++) {
    const float *from = moments + (size_t)i * 3 * (size_t)channels + c;
    const double n = from[0], delta = from[channels] - all.mean, sum = all.n + n;
    if (!(n > 0)) continue;
    all.mean += delta * n / sum;
    all.m2 += from[2 * channels] + delta * delta * all.n * n / sum;
    all.n = sum;
  }
  return all;
}

// Of pixels first … last - 1.
static Merged moments_of(const Tensor *y, const float *values, size_t first, size_t last, int c, double *largest) {
  Merged m = {.n = (double)(last - first)};
  *largest = 0;
  for (size_t i = first; i < last; i++) {
    m.mean += values[i * (size_t)y->ldc + (size_t)c] / m.n;
    *largest = fmax(*largest, fabs(values[i * (size_t)y->ldc + (size_t)c]));
  }
  for (size_t i = first; i < last; i++) {
    const double d = values[i * (size_t)y->ldc + (size_t)c] - m.mean;
    m.m2 += d * d;
  }
  return m;
}

// In float a part sums distances of at most 2 · largest to a pixel of its own, 64 of them at most and each sum of a few
// roundings: their mean is off by 2^-18 of the largest value at most, their squares, and Σ² / n with them, by 2^-17 of
// (2 · largest)² a value. Merging in double adds nothing to speak of. The largest is not 0: noise of 1 where it is.
static bool check_values(const Tensor *y, const float *values, size_t first, size_t last, Merged got, int c) {
  double largest;
  const Merged want = moments_of(y, values, first, last, c, &largest);
  const double mean = 0x1p-18 * largest, m2 = 0x1p-17 * 4 * largest * largest * want.n;
  const bool ok = got.n == want.n && fabs(got.mean - want.mean) <= mean && fabs(got.m2 - want.m2) <= m2;
  if (!ok)
    printf("  channel %d: %g values, mean %.9g, squares %.9g; expected %g, %.9g, %.9g\n", c, got.n, got.mean, got.m2,
           want.n, want.mean, want.m2);
  return ok;
}

static bool check_channel(const Tensor *y, const float *values, const float *moments, int parts, int c) {
  const size_t pixels = tensor_pixels(y), part = CONV_MOMENTS_PIXELS;
  for (int i = 0; i < parts; i++) {
    const size_t first = (size_t)i * part;
    if (!check_values(y, values, first, MIN(first + part, pixels),
                      merge(moments + first / part * 3 * (size_t)y->c, 1, y->c, c), c))
      return false;
  }
  return check_values(y, values, 0, pixels, merge(moments, parts, y->c, c), c);
}

// Whether the rung computes the problem and tells its moments.
static bool run(const Mode *m, const Problem *p, bool relu, uint64_t seed) {
  Device *gpu = gpu_device();
  Draw d = {.key = rng_key(seed, RNG_TEST)};
  TensorPair x = whole(&d, m->dtype, p->n, p->h[0], p->w[0], p->c), w = whole(&d, m->dtype, p->k, p->r, p->s, p->c);
  TensorPair y =
      pair_poisoned(m->dtype, p->n, out_size(p->h[0], p->r, &p->conv), out_size(p->w[0], p->s, &p->conv), p->k);
  TensorPair bias = whole_vector(&d, p->k);
  gpu->tf32 = m->tf32;
  const bool computes = m->rung->supports(gpu, CONV_FORWARD, &p->conv, &x.gpu, &w.gpu);
  const int parts = computes ? m->rung->moments(gpu, &p->conv, &x.gpu, &w.gpu, &y.gpu) : 0;
  gpu->tf32 = false;
  if (parts) {
    TensorPair moments[2] = {pair_packed(parts, 3 * p->k, NULL), pair_packed(parts, 3 * p->k, NULL)};
    float *told[2];
    for (int i = 0; i < 2; i++) {
      Dest to = {.t = y.gpu, .relu = relu, .bias = bias.gpu.data, .moments = moments[i].gpu.data};
      RUN_ON_GPU(m, conv_forward, &p->conv, 1, &x.gpu, &w.gpu, &to);
      told[i] = gpu_fetch_floats(&moments[i].gpu);
    }
    float *values = gpu_fetch_floats(&y.gpu);
    bool ok = !memcmp(told[0], told[1], tensor_bytes(&moments[0].gpu));
    if (!ok) printf("  another run told other bits\n");
    for (int c = 0; c < p->k && ok; c++) ok = check_channel(&y.gpu, values, told[0], parts, c);
    if (!ok) describe(m, FORWARD, p);
    EXPECT(ok);
    for (int i = 0; i < 2; i++) {
      pair_check_guards(&moments[i], false);
      pair_free(&moments[i]);
      free(told[i]);
    }
    free(values);
  }
  TensorPair *all[] = {&x, &w, &y, &bias};
  for (int i = 0; i < COUNT(all); i++) {
    pair_check_guards(all[i], all[i] != &y);
    pair_free(all[i]);
  }
  return parts;
}

// Tiles of every width; rows that end within a warp's sixteen, a warpgroup's 64 and a tile; blocks with one tile and
// with many, a tail wave, strides, padding lanes.
static const Problem problems[] = {
    {{1, 0}, 1, 1, 1, 1, 16, 24, {5}, {5}, {-1}},      {{1, 0}, 1, 1, 1, 1, 64, 64, {13}, {5}, {-1}},
    {{1, 1}, 3, 3, 1, 2, 24, 136, {9}, {9}, {-1}},     {{2, 1}, 3, 3, 1, 2, 32, 264, {19}, {20}, {-1}},
    {{1, 0}, 1, 1, 1, 3, 40, 30, {11}, {7}, {-1}},     {{1, 0}, 1, 1, 1, 70, 64, 64, {1}, {1}, {-1}},
    {{1, 0}, 7, 7, 1, 130, 16, 72, {7}, {7}, {-1}},    {{1, 0}, 1, 1, 1, 3, 64, 256, {117}, {121}, {-1}},
    {{1, 0}, 1, 1, 1, 3, 64, 128, {117}, {121}, {-1}}, {{1, 0}, 1, 1, 1, 3, 64, 192, {117}, {121}, {-1}},
    {{1, 1}, 3, 3, 1, 3, 64, 64, {117}, {121}, {-1}},  {{1, 0}, 1, 1, 1, 60, 256, 2176, {17}, {17}, {-1}},
    {{1, 1}, 3, 3, 1, 59, 192, 256, {17}, {17}, {-1}}, {{1, 0}, 1, 1, 1, 2, 64, 16, {90}, {91}, {-1}},
};

TEST_TIER(cuda_conv_tells_the_moments_of_what_it_writes, 1) {
  if (!gpu_device()) return;
  Mode modes[MAX_MODES];
  int num_modes = find_modes(gpu_device(), WGMMA, modes);
  if (!num_modes) return test_skip("rung 05 needs a Hopper GPU, sm_90a");
  for (int i = 0; i < num_modes; i++) {
    int told = 0; // of floats, convolutions of few channels are another rung's
    for (int j = 0; j < COUNT(problems); j++) told += run(&modes[i], &problems[j], j % 3 == 0, (uint64_t)(100 * i + j));
    EXPECT(told >= COUNT(problems) / 2);
  }
}
