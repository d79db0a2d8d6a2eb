// Catches convolutions that pool their own output (Dest.pool) to other bits than the two ops.
//
// On images of any size: windows and tiles that reach beyond the image, fewer pixels than a tile, strips with one tile
// and with many, blocks that begin in the middle of a strip (by how many multiprocessors are granted), NaN.
#include "test/harness/gpu_conv.h"

static const Pool pool = {3, 2, 1};

typedef struct Shape {
  int n, h, w, c, k, taps, pad, rows; // rows: -1 no count
} Shape;
static const Shape shapes[] = {
    {1, 1, 1, 3, 64, 7, 3, -1},    {1, 2, 3, 3, 8, 7, 3, -1},     {2, 7, 5, 1, 24, 7, 3, -1},
    {1, 16, 124, 3, 64, 7, 3, -1}, {2, 21, 125, 4, 64, 7, 3, -1}, {1, 126, 127, 3, 72, 7, 3, -1},
    {3, 13, 260, 2, 130, 5, 2, 2}, {1, 301, 40, 3, 64, 7, 3, -1}, {2, 64, 64, 3, 64, 3, 1, 0},
    {2, 96, 250, 3, 64, 3, 1, -1}, {1, 9, 11, 3, 64, 7, 0, -1},   {1, 47, 131, 3, 48, 6, 2, -1},
};

static float *run(const Mode *m, const Shape *s, const TensorPair *in[3], bool both, int granted) {
  Device *gpu = gpu_device();
  const Conv conv = {2, s->pad};
  const int h = out_size(s->h, s->taps, &conv), w = out_size(s->w, s->taps, &conv);
  TensorPair full = pair_poisoned(m->dtype, s->n, h, w, s->k);
  TensorPair y = pair_poisoned(m->dtype, s->n, pool_extent(&pool, h, false), pool_extent(&pool, w, false), s->k);
  Dest to = {.t = y.gpu, .relu = true, .bias = in[2]->gpu.data, .pool = both ? &pool : NULL};
  gpu->granted = granted;
  if (both) {
    RUN_ON_GPU(m, conv_forward, &conv, 1, &in[0]->gpu, &in[1]->gpu, &to);
  } else {
    const Dest max = to;
    to.t = full.gpu;
    to.t.count = in[0]->gpu.count;
    RUN_ON_GPU(m, conv_forward, &conv, 1, &in[0]->gpu, &in[1]->gpu, &to);
    RUN_ON_GPU(m, max_pool_forward, &pool, &to.t, &(Dest){.t = max.t});
  }
  gpu->granted = gpu->multiprocessors;
  pair_check_guards(&y, false);
  float *values = gpu_fetch_floats(&y.gpu);
  pair_free(&y);
  pair_free(&full);
  return values;
}

TEST_TIER(cuda_conv_pools_what_it_makes, 1) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  Mode modes[MAX_MODES];
  const int num_modes = find_modes(gpu, WGMMA, modes);
  if (!num_modes) return test_skip("rung 05 needs a Hopper GPU, sm_90a");
  for (int i = 0; i < num_modes; i++)
    for (int j = 0; j < COUNT(shapes); j++) {
      const Shape *s = &shapes[j];
      const Conv conv = {2, s->pad};
      const uint64_t seed = (uint64_t)(100 * i + j);
      TensorPair x = pair_random(modes[i].dtype, s->n, s->h, s->w, s->c, 1, seed);
      TensorPair w = pair_random(modes[i].dtype, s->k, s->taps, s->taps, s->c, 0.1, seed + 50);
      TensorPair bias = pair_random(F32, 1, 1, 1, s->k, 0.2, seed + 70);
      const TensorPair *in[] = {&x, &w, &bias};
      count_rows(&x, s->rows);
      gpu->conv_rung = modes[i].rung;
      const bool pools = gpu->ops->conv_pools(gpu, &conv, &pool, &x.gpu, &w.gpu);
      gpu->conv_rung = NULL;
      EXPECT(pools == (modes[i].dtype != F32));
      for (int nan = 0; pools && nan < 2; nan++) {
        if (nan) device_upload(gpu, (char *)x.gpu.data + tensor_bytes(&x.gpu) / 2 / 16 * 16, (uint16_t[]){0x7fff}, 2);
        float *want = run(&modes[i], s, in, false, gpu->multiprocessors);
        const int rows = s->rows < 0 ? s->n : s->rows;
        const int granted[] = {gpu->multiprocessors, 1, 3, gpu->multiprocessors};
        for (int k = 0; k < COUNT(granted); k++) {
          float *got = run(&modes[i], s, in, true, granted[k]);
          const int h = pool_extent(&pool, out_size(s->h, s->taps, &conv), false);
          const int p = pool_extent(&pool, out_size(s->w, s->taps, &conv), false);
          const size_t bytes = (size_t)rows * h * p * channel_pitch(s->k) * sizeof *got;
          if (memcmp(want, got, bytes)) printf("  shape %d, type %d, %d granted, NaN %d\n", j, i, granted[k], nan);
          EXPECT(!memcmp(want, got, bytes));
          free(got);
        }
        free(want);
      }
      TensorPair *all[] = {&x, &w, &bias};
      for (int k = 0; k < COUNT(all); k++) pair_free(all[k]);
    }
}
