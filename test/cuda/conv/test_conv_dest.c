// Catches GPU convolutions that ignore a bias, addend, mask, ReLU or accumulation.
#include "test/harness/gpu_conv.h"

typedef struct ConvArgs {
  Conv conv;
  TensorPair in, w;
  bool backward;
} ConvArgs;
static void run_dest(Device *dev, bool gpu, void *context, const Dest *d) {
  const ConvArgs *a = context;
  if (a->backward)
    dev->ops->conv_dgrad(dev, &a->conv, 1, pair_side(&a->in, gpu), pair_side(&a->w, gpu), d);
  else
    dev->ops->conv_forward(dev, &a->conv, 1, pair_side(&a->in, gpu), pair_side(&a->w, gpu), d);
}

static void check_every_dest(const Mode *m, bool backward, uint64_t seed) {
  Device *gpu = gpu_device();
  Draw d = {.key = rng_key(seed, RNG_TEST)};
  ConvArgs a = {.conv = {1, 1}, .backward = backward};
  a.in = whole(&d, m->dtype, 2, 5, 6, 11);
  a.w = backward ? whole(&d, m->dtype, 11, 3, 3, 9) : whole(&d, m->dtype, 9, 3, 3, 11);
  TensorPair shape = pair_poisoned(m->dtype, 2, 5, 6, 9);
  pair_rows(&shape, 1);
  pair_rows(&a.in, 1);
  gpu->conv_rung = m->rung;
  gpu->tf32 = m->tf32;
  pair_check_dests(run_dest, &a, &shape, NULL, 1, seed);
  gpu->conv_rung = NULL;
  gpu->tf32 = false;
  pair_free(&a.in);
  pair_free(&a.w);
  pair_free(&shape);
}
// Each rung in the first of its types, or in all of them.
static void check_all_dests(Side side, bool all) {
  Mode modes[MAX_MODES];
  int num_modes = find_modes(gpu_device(), side, modes);
  if (!num_modes) return test_skip("libcudnn.so.9 is not on LD_LIBRARY_PATH");
  for (int i = 0; i < num_modes; i++)
    for (int backward = 0; backward < 2; backward++)
      if (all || (modes[i].rung && (!i || modes[i].rung != modes[i - 1].rung)))
        check_every_dest(&modes[i], backward, (uint64_t)i);
}
TEST(cuda_conv_honours_every_dest) {
  if (gpu_device()) check_all_dests(RACECHECKED, false);
}
TEST_TIER(cuda_conv_honours_every_dest_in_every_type, 1) {
  if (gpu_device()) check_all_dests(OURS, true);
}
TEST_TIER(cuda_conv_by_cudnn_honours_every_dest, 1) {
  if (gpu_device()) check_all_dests(CUDNN, false);
}
