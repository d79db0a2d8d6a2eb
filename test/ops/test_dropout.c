// Catches dropout of other elements than the contract says, or of another share.
//
// Which elements are dropped follows from the contract's draws alone, how many from p. On the GPU the same elements, to
// the bit in F32; and in a recorded program, by the step's number in device memory.
#include "base/rng.h"
#include "test/harness/gpu.h"
#include "test/harness/gradcheck.h"

static const char *const devices[] = {"cpu", "cpu64"};

typedef struct DropoutArgs {
  Dropout p;
  const Tensor *x;
} DropoutArgs;
static void run_dropout(Device *dev, void *context, const Dest *y) {
  const DropoutArgs *a = context;
  dev->ops->dropout(dev, &a->p, a->x, y);
}

TEST(dropout_equals_definition) {
  const float ps[] = {0, 0.25f, 0.5f, 0.9f, 1};
  const uint64_t step = 7;
  const int rows = 2;
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    Tensor x = test_tensor(dev->real, 3, 5, 3, 11);
    x.count = &rows;
    test_fill(&x, 1, 1, 2);
    for (int i = 0; i < 2 * COUNT(ps); i++) {
      DropoutArgs a = {{.p = ps[i / 2], .key = 5, .step = i % 2 ? &step : NULL, .first_row = i % 2 * 3}, &x};
      Dest y = {.t = test_tensor_like(&x)};
      run_op(dev, run_dropout, &a, &y);
      uint64_t key = rng_key(5, i % 2 ? step : 0), element = (uint64_t)(i % 2) * 3 * 5 * 3 * 11;
      for (int n = 0; n < rows; n++)
        for (int h = 0; h < x.h; h++)
          for (int w = 0; w < x.w; w++)
            for (int c = 0; c < x.c; c++, element++) {
              bool kept = rng_u32(key, element) * 0x1p-32 >= (double)ps[i / 2];
              double want = kept ? get(&x, n, h, w, c) / (1 - (double)ps[i / 2]) : 0;
              // The factor is rounded twice, the product once.
              EXPECT_NEAR(get(&y.t, n, h, w, c), want, 4 * unit_roundoff(dev->real) * want);
            }
      expect_padding_zero(&y.t);
      if (ps[i / 2] == 0) EXPECT(same_bits(&y.t, &x));
      test_tensor_free(&y.t);
    }
    check_dests(dev, run_dropout, &(DropoutArgs){{.p = 0.5f, .key = 3}, &x}, &x, 1);
    test_tensor_free(&x);
    device_close(dev);
  }
}

// Of a row, by rank 1, what a single rank draws for it.
TEST(dropout_by_rows_of_all_ranks) {
  Device *dev = device_open("cpu", NULL);
  Tensor all = test_tensor(F32, 4, 3, 2, 5), part = all;
  test_fill(&all, 1, 1, 2);
  part.n = 2;
  part.data = (float *)all.data + tensor_elements(&part);
  Dest y = {.t = test_tensor_like(&all)}, own = {.t = test_tensor_like(&part)};
  run_op(dev, run_dropout, &(DropoutArgs){{.p = 0.5f, .key = 3}, &all}, &y);
  run_op(dev, run_dropout, &(DropoutArgs){{.p = 0.5f, .key = 3, .first_row = 2}, &part}, &own);
  EXPECT(!memcmp(own.t.data, (float *)y.t.data + tensor_elements(&part), tensor_bytes(&part)));
  test_tensor_free(&all);
  test_tensor_free(&y.t);
  test_tensor_free(&own.t);
  device_close(dev);
}

// A binomial number, five standard deviations from its mean at most: a fair draw fails one seed in two million, and
// this seed is fixed. Steps, layers and elements draw apart.
TEST(dropout_is_fair) {
  enum { N = 100000 };
  Device *dev = device_open("cpu", NULL);
  Tensor x = test_tensor(F32, 1, 1, N / 8, 8), before = test_tensor_like(&x);
  test_fill(&x, 1, 1, 2);
  for (uint64_t step = 0; step < 4; step++) {
    Dest y = {.t = test_tensor_like(&x)};
    run_op(dev, run_dropout, &(DropoutArgs){{.p = 0.3f, .key = 1 + step / 2, .step = &step}, &x}, &y);
    int dropped = 0, both = 0;
    for (int i = 0; i < N; i++) {
      bool zero = ((float *)y.t.data)[i] == 0;
      dropped += zero;
      both += zero && ((float *)before.data)[i] == 0;
    }
    EXPECT_NEAR(dropped, 0.3 * N, 5 * sqrt(0.3 * 0.7 * N));
    if (step) EXPECT_NEAR(both, 0.09 * N, 5 * sqrt(0.09 * 0.91 * N));
    memcpy(before.data, y.t.data, tensor_bytes(&x));
    test_tensor_free(&y.t);
  }
  test_tensor_free(&x);
  test_tensor_free(&before);
  device_close(dev);
}

typedef struct DropoutObjective {
  Device *dev;
  DropoutArgs args;
  const Tensor *r;
  Dest y;
} DropoutObjective;
static double objective(void *context) {
  DropoutObjective *o = context;
  run_op(o->dev, run_dropout, &o->args, &o->y);
  return weighted_sum(o->r, &o->y.t, NULL);
}

TEST(dropout_gradient_check) {
  Device *dev = device_open("cpu64", NULL);
  Tensor x = test_tensor(F64, 2, 3, 4, 5), r = test_tensor_like(&x);
  test_fill(&x, 1, -1, 1);
  test_fill(&r, 2, -1, 1);
  DropoutObjective o = {dev, {{.p = 0.4f, .key = 9}, &x}, &r, {.t = test_tensor_like(&x)}};
  Dest dx = {.t = test_tensor_like(&x)};
  run_op(dev, run_dropout, &(DropoutArgs){o.args.p, &r}, &dx);
  double magnitude;
  objective(&o);
  weighted_sum(&r, &o.y.t, &magnitude);
  gradcheck(objective, &o, &x, &dx.t, magnitude, 2 * 3 * 4 * 5, 0, 1000); // linear: no truncation
  Tensor *all[] = {&x, &r, &o.y.t, &dx.t};
  for (int i = 0; i < COUNT(all); i++) test_tensor_free(all[i]);
  device_close(dev);
}

// ---- on the GPU -----------------------------------------------------------------------------------------------------

static const DType dtypes[] = {F32, BF16, F16};

typedef struct DropoutTwins {
  Dropout p;
  TwinArray step;
  Twin x;
} DropoutTwins;
static void gpu_run_dropout(Device *dev, bool gpu, void *context, const Dest *y) {
  DropoutTwins *a = context;
  Dropout p = a->p;
  p.step = twin_array_data(&a->step, gpu);
  dev->ops->dropout(dev, &p, twin_side(&a->x, gpu), y);
}

TEST(cuda_dropout_equals_cpu) {
  if (!gpu_device()) return;
  const float ps[] = {0, 0.25f, 0.5f, 0.9f, 1};
  const int shapes[][4] = {{3, 5, 4, 11}, {2, 1, 1, 4096}, {1, 31, 17, 64}};
  const uint64_t step = 12345;
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int s = 0; s < COUNT(shapes); s++)
      for (int i = 0; i < COUNT(ps); i++) {
        const int *n = shapes[s];
        DropoutTwins a = {.p = {.p = ps[i], .key = 3, .first_row = s}, .step = twin_array(1, sizeof step, &step)};
        a.x = twin_random(dtypes[d], n[0], n[1], n[2], n[3], 1, 1);
        if (s == 0) twin_rows(&a.x, 2);
        Twin y = twin_poisoned_like(&a.x);
        twin_run(gpu_run_dropout, &a, &y);
        if (!twin_check(&y, NULL, dtypes[d] == F32 ? 0 : 1)) printf("  dtype %d, p %g\n", dtypes[d], (double)ps[i]);
        twin_check_guards(&y, false);
        if (s == 0 && i == 2) twin_check_dests(gpu_run_dropout, &a, &a.x, NULL, dtypes[d] == F32 ? 0 : 1, 10);
        twin_check_guards(&a.x, true);
        twin_free(&y);
        twin_free(&a.x);
        twin_array_free(&a.step);
      }
}

// Replayed, a program draws what each step draws alone.
TEST(cuda_dropout_replays_by_step) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  uint64_t step = 0;
  DropoutTwins a = {.p = {.p = 0.5f, .key = 3}, .step = twin_array(1, sizeof step, &step)};
  a.x = twin_random(F32, 2, 3, 3, 16, 1, 1);
  Twin y = twin_poisoned_like(&a.x);
  CHECK(device_record(gpu));
  gpu_run_dropout(gpu, true, &a, &(Dest){.t = y.gpu});
  void *program = device_record_end(gpu);
  float *before = NULL;
  for (step = 0; step < 3; step++) {
    *(uint64_t *)a.step.cpu = step;
    device_upload(gpu, a.step.gpu, &step, sizeof step);
    device_replay(gpu, program);
    device_sync(gpu);
    gpu_run_dropout(cpu_device(), false, &a, &(Dest){.t = y.cpu});
    twin_check(&y, NULL, 0);
    float *now = gpu_fetch_floats(&y.gpu);
    if (before) EXPECT(memcmp(before, now, tensor_bytes(&y.cpu)) && "another step, another draw");
    free(before);
    before = now;
  }
  free(before);
  device_forget(gpu, program);
  twin_free(&y);
  twin_free(&a.x);
  twin_array_free(&a.step);
}
