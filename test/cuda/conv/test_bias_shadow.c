// Catches bias gradients and filter copies on the GPU that differ from the CPU's.
#include "test/harness/gpu_conv.h"

TEST(cuda_bias_grad_adds_columns) {
  Device *gpu = gpu_device(), *cpu = cpu_device();
  if (!gpu) return;
  static const struct {
    int n, h, w, c, rows;
  } cases[] = {{1, 1, 1, 1, -1},    {2, 5, 7, 3, -1}, {3, 9, 9, 12, 2},   {4, 40, 41, 91, -1},
               {30, 1, 1, 364, 17}, {2, 3, 3, 8, 0},  {1, 3, 5, 1100, -1}};
  const Mode any = {.rung = NULL};
  for (int i = 0; i < COUNT(cases); i++)
    for (DType t = F32; t < DTYPES; t++)
      for (int accumulate = 0; accumulate < 2 && t != F64; accumulate++) {
        Draw d = {.key = rng_key((uint64_t)i, RNG_TEST)};
        TensorPair dy = whole(&d, t, cases[i].n, cases[i].h, cases[i].w, cases[i].c);
        count_rows(&dy, cases[i].rows);
        TensorPair db = accumulate ? whole_vector(&d, cases[i].c) : pair_packed(1, cases[i].c, NULL);
        cpu->ops->bias_grad(cpu, &dy.cpu, db.cpu.data, accumulate);
        RUN_ON_GPU(&any, bias_grad, &dy.gpu, db.gpu.data, accumulate);
        if (!pair_check(&db, NULL, 0)) printf("  case %d, dtype %d, accumulate %d\n", i, t, accumulate);
        pair_check_guards(&dy, true);
        pair_check_guards(&db, false);
        pair_free(&dy);
        pair_free(&db);
      }
}

TEST(cuda_filter_shadow_scales_rows) {
  Device *gpu = gpu_device(), *cpu = cpu_device();
  if (!gpu) return;
  const Mode any = {.rung = NULL};
  for (DType t = F32; t < DTYPES; t++)
    for (int scaled = 0; scaled < 2 && t != F64; scaled++) {
      Draw d = {.key = RNG_TEST};
      TensorPair master = pair_random(F32, 70, 3, 3, 11, 1, 4), shadow = pair_poisoned(t, 70, 3, 3, 11);
      TensorPair scale = whole_vector(&d, 70);
      cpu->ops->filter_shadow(cpu, &master.cpu, scaled ? scale.cpu.data : NULL, &shadow.cpu);
      RUN_ON_GPU(&any, filter_shadow, &master.gpu, scaled ? scale.gpu.data : NULL, &shadow.gpu);
      if (!pair_check(&shadow, NULL, t == F32 ? 0 : 1)) printf("  dtype %d, scale %d\n", t, scaled);
      pair_check_guards(&master, true);
      pair_check_guards(&shadow, false);
      pair_free(&master);
      pair_free(&shadow);
      pair_free(&scale);
    }
}
