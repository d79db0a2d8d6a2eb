// Catches gradients of the mask predictor in one pass (own_predictor_dgrad, own_predictor_wgrad) that are not those of
// its layers one by one.
//
// Whole numbers, whose sums are exact, against the CPU's layers; random ones against the GPU's, bit by bit where sums
// have the same order. Objects of more pixels and fewer than a tile has rows, none, one; all of one class and of many;
// whatever of an object is past the count is NaN; for any multiprocessors granted, twice the same bits.
#include "test/harness/gpu_conv.h"

enum { CHANNELS = 256 };

typedef struct Case {
  int capacity, count, classes, h, w;
} Case;
static const Case cases[] = {{3, 3, 5, 8, 8},   {1, 1, 2, 14, 14},   {5, 0, 3, 14, 14},  {4, 3, 81, 14, 14},
                             {9, 7, 91, 9, 13}, {20, 17, 4, 14, 14}, {30, 30, 7, 8, 11}, {3, 2, 3, 30, 31}};

typedef struct Operands {
  TensorPair x, filter, hidden, w, dlogits, bias;
  ArrayPair label, count;
} Operands;

static RoiTargets targets(const Operands *o, bool gpu) {
  return (RoiTargets){.objects = {.capacity = o->x.cpu.n, .count = array_pair_data(&o->count, gpu)},
                      .object_label = array_pair_data(&o->label, gpu)};
}

// Rows past the count become NaN on the GPU.
static void poison_rows(const TensorPair *t, int count) {
  const size_t bytes = tensor_bytes(&t->gpu), begin = bytes / (size_t)t->gpu.n * (size_t)count;
  if (begin == bytes) return;
  char *nan = xmalloc(bytes - begin);
  memset(nan, 0xff, bytes - begin);
  device_upload(gpu_device(), (char *)t->gpu.data + begin, nan, bytes - begin);
  free(nan);
}

static Operands operands(const Case *k, DType dtype, bool whole_numbers, uint64_t seed) {
  Draw d = {.key = rng_key(seed, RNG_TEST)};
  Operands o;
  const int n = k->capacity;
  if (whole_numbers) {
    o = (Operands){.x = whole(&d, dtype, n, k->h, k->w, CHANNELS),
                   .filter = whole(&d, dtype, CHANNELS, 2, 2, CHANNELS),
                   .hidden = whole(&d, dtype, n, 2 * k->h, 2 * k->w, CHANNELS),
                   .w = whole(&d, dtype, k->classes, 1, 1, CHANNELS)};
  } else {
    o = (Operands){.x = pair_random(dtype, n, k->h, k->w, CHANNELS, 1, seed + 1),
                   .filter = pair_random(dtype, CHANNELS, 2, 2, CHANNELS, 0.05, seed + 2),
                   .hidden = pair_random(dtype, n, 2 * k->h, 2 * k->w, CHANNELS, 1, seed + 3),
                   .w = pair_random(dtype, k->classes, 1, 1, CHANNELS, 0.1, seed + 4)};
  }
  const int pixels = n * 4 * k->h * k->w;
  float *dlogits = xmalloc((size_t)pixels * sizeof *dlogits);
  for (int i = 0; i < pixels; i++)
    dlogits[i] = whole_numbers ? (float)(below(&d, 5) - 2) : (float)below(&d, 1000) * 1e-3f - 0.5f;
  o.dlogits = pair_packed(pixels, 1, dlogits);
  free(dlogits);
  for (int i = 0; i < 2; i++) {
    Tensor *t = i ? &o.dlogits.gpu : &o.dlogits.cpu;
    t->n = n;
    t->h = 2 * k->h;
    t->w = 2 * k->w;
  }
  o.bias = whole_vector(&d, k->classes);
  int *label = xmalloc((size_t)n * sizeof *label);
  for (int i = 0; i < n; i++) label[i] = seed % 2 ? k->classes - 1 : below(&d, k->classes);
  o.label = array_pair((size_t)n, sizeof *label, label);
  free(label);
  o.count = array_pair(1, sizeof k->count, &k->count);
  pair_rows(&o.x, k->count);
  pair_rows(&o.hidden, k->count);
  poison_rows(&o.x, k->count);
  poison_rows(&o.hidden, k->count);
  poison_rows(&o.dlogits, k->count);
  return o;
}

static void operands_free(Operands *o) {
  TensorPair *all[] = {&o->x, &o->filter, &o->hidden, &o->w, &o->dlogits, &o->bias};
  for (int i = 0; i < COUNT(all); i++) pair_free(all[i]);
  array_pair_free(&o->label);
  array_pair_free(&o->count);
}

typedef struct Results {
  TensorPair dx, dw, db, dw_logits, db_logits;
} Results;
enum { RESULTS = sizeof(Results) / sizeof(TensorPair) };

static Results results(const Operands *o, bool accumulate, uint64_t seed) {
  Draw d = {.key = rng_key(seed, RNG_TEST)};
  const int classes = o->w.cpu.n;
  Results r = {.dx = pair_poisoned_like(&o->x)};
  r.dw = accumulate ? whole(&d, F32, CHANNELS, 2, 2, CHANNELS) : pair_poisoned(F32, CHANNELS, 2, 2, CHANNELS);
  r.db = accumulate ? whole_vector(&d, CHANNELS) : pair_packed(1, CHANNELS, NULL);
  r.dw_logits = accumulate ? whole(&d, F32, classes, 1, 1, CHANNELS) : pair_poisoned(F32, classes, 1, 1, CHANNELS);
  r.db_logits = accumulate ? whole_vector(&d, classes) : pair_packed(1, classes, NULL);
  return r;
}

static void results_free(Results *r) {
  for (int i = 0; i < RESULTS; i++) pair_free((TensorPair *)r + i);
}

static void grads(const Results *r, bool gpu, bool accumulate, FilterGrad out[2]) {
  out[0] = (FilterGrad){.dw = *pair_side(&r->dw, gpu), .db = pair_data(&r->db, gpu), .accumulate = accumulate};
  out[1] =
      (FilterGrad){.dw = *pair_side(&r->dw_logits, gpu), .db = pair_data(&r->db_logits, gpu), .accumulate = accumulate};
}

// Layer by layer, on either device; dy is workspace like `hidden`.
static void by_layers(const Operands *o, const Results *r, bool gpu, bool masked, bool accumulate) {
  static const Mode any = {.rung = NULL};
  const Conv conv = {.stride = 2};
  const RoiTargets t = targets(o, gpu);
  TensorPair dy = pair_poisoned_like(&o->hidden);
  const Tensor *x = pair_side(&o->x, gpu), *filter = pair_side(&o->filter, gpu), *hidden = pair_side(&o->hidden, gpu),
               *w = pair_side(&o->w, gpu), *dlogits = pair_side(&o->dlogits, gpu);
  const Dest to_dy = {.t = *pair_side(&dy, gpu), .mask = hidden};
  const Dest to = {.t = *pair_side(&r->dx, gpu), .mask = masked ? x : NULL};
  FilterGrad out[2];
  grads(r, gpu, accumulate, out);
  void *db = out[0].db;
  out[0].db = NULL;
  if (gpu) {
    RUN_ON_GPU(&any, own_logits_backward, &t, hidden, w, dlogits, &to_dy, &out[1]);
    RUN_ON_GPU(&any, conv_forward, &conv, 1, &to_dy.t, filter, &to);
    RUN_ON_GPU(&any, conv_wgrad, &conv, 1, &to_dy.t, x, &out[0]);
    RUN_ON_GPU(&any, bias_grad, &to_dy.t, db, accumulate);
  } else {
    Device *cpu = cpu_device();
    cpu->ops->own_logits_backward(cpu, &t, hidden, w, dlogits, &to_dy, &out[1]);
    cpu->ops->conv_forward(cpu, &conv, 1, &to_dy.t, filter, &to);
    cpu->ops->conv_wgrad(cpu, &conv, 1, &to_dy.t, x, &out[0]);
    cpu->ops->bias_grad(cpu, &to_dy.t, db, accumulate);
  }
  pair_free(&dy);
}

static void at_once(const Mode *m, const Operands *o, const Results *r, bool masked, bool accumulate, int granted) {
  Device *gpu = gpu_device();
  const RoiTargets t = targets(o, true);
  const Tensor *hidden = &o->hidden.gpu;
  TensorPair logits = pair_packed((int)tensor_pixels(hidden), 1, NULL),
             signs = pair_poisoned(F32, hidden->n, hidden->h, hidden->w, CHANNELS / 32);
  Tensor to_logits = o->dlogits.gpu;
  to_logits.data = logits.gpu.data;
  const Dest to = {.t = r->dx.gpu, .mask = masked ? &o->x.gpu : NULL};
  FilterGrad out[2];
  grads(r, true, accumulate, out);
  RUN_ON_GPU(m, own_logits, &t, hidden, &o->w.gpu, o->bias.gpu.data, &to_logits, signs.gpu.data);
  gpu->granted = granted;
  RUN_ON_GPU(m, own_predictor_dgrad, &t, &o->filter.gpu, &o->w.gpu, &o->dlogits.gpu, signs.gpu.data, &to);
  RUN_ON_GPU(m, own_predictor_wgrad, &t, &o->x.gpu, hidden, &o->w.gpu, &o->dlogits.gpu, signs.gpu.data, out);
  gpu->granted = gpu->multiprocessors;
  pair_check_guards(&logits, false);
  pair_check_guards(&signs, false);
  pair_free(&logits);
  pair_free(&signs);
  for (int i = 0; i < RESULTS; i++) pair_check_guards((const TensorPair *)r + i, false);
}

static void check_whole(const Mode *m, const Case *k, uint64_t seed, int granted) {
  const bool masked = seed & 1, accumulate = seed & 2;
  Operands o = operands(k, m->dtype, true, seed);
  Results r = results(&o, accumulate, seed);
  by_layers(&o, &r, false, masked, accumulate);
  at_once(m, &o, &r, masked, accumulate, granted);
  bool right = pair_check(&r.dx, NULL, 1);
  for (int i = 1; i < RESULTS; i++) right &= pair_check((const TensorPair *)&r + i, NULL, 0);
  if (!right)
    printf("  dtype %d, %d of %d objects, %d x %d, %d classes, seed %d, %d granted\n", m->dtype, k->count, k->capacity,
           k->h, k->w, k->classes, (int)seed, granted);
  results_free(&r);
  operands_free(&o);
}

static bool equal_bits(const TensorPair *a, const TensorPair *b, int rows) {
  const size_t bytes = tensor_bytes(&a->gpu) / (size_t)a->gpu.n * (size_t)rows;
  void *x = gpu_fetch(a->gpu.data, bytes + 1), *y = gpu_fetch(b->gpu.data, bytes + 1);
  const bool same = !memcmp(x, y, bytes);
  free(x);
  free(y);
  return same;
}

static void check_bits(const Mode *m, const Case *k, uint64_t seed) {
  Operands o = operands(k, m->dtype, false, seed);
  Results layers = results(&o, false, seed), first = results(&o, false, seed), again = results(&o, false, seed);
  by_layers(&o, &layers, true, seed & 1, false);
  at_once(m, &o, &first, seed & 1, false, gpu_device()->multiprocessors);
  at_once(m, &o, &again, seed & 1, false, gpu_device()->multiprocessors);
  EXPECT(equal_bits(&layers.dx, &first.dx, k->count));
  for (int i = 0; i < RESULTS; i++) {
    const TensorPair *a = (const TensorPair *)&first + i, *b = (const TensorPair *)&again + i;
    EXPECT(equal_bits(a, b, i ? a->gpu.n : k->count));
  }
  results_free(&layers);
  results_free(&first);
  results_free(&again);
  operands_free(&o);
}

TEST_TIER(cuda_own_predictor_is_its_layers, 1) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  Mode modes[MAX_MODES];
  const int num_modes = find_modes(gpu, WGMMA, modes);
  if (!num_modes) return test_skip("rung 05 needs a Hopper GPU, sm_90a");
  const int granted[] = {gpu->multiprocessors, 1, gpu->multiprocessors - 5, 17};
  for (int i = 0; i < num_modes; i++)
    for (int j = 0; j < COUNT(cases) && modes[i].dtype != F32; j++)
      for (int seed = 0; seed < 4; seed++) {
        check_whole(&modes[i], &cases[j], (uint64_t)(4 * j + seed), granted[(j + seed) % COUNT(granted)]);
        check_bits(&modes[i], &cases[j], (uint64_t)(4 * j + seed));
      }
}

// Other shapes are left to the layers.
TEST(cuda_own_predictor_shapes) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  const Tensor x = tensor(BF16, 8, 14, 14, 256), filter = tensor(BF16, 256, 2, 2, 256), w = tensor(BF16, 91, 1, 1, 256);
  const Tensor few = tensor(BF16, 8, 7, 9, 256), narrow = tensor(BF16, 8, 14, 14, 128),
               exact = tensor(F32, 8, 14, 14, 256);
  const Tensor other = tensor(BF16, 256, 3, 3, 256), wide = tensor(BF16, 91, 1, 1, 512);
  EXPECT(gpu->ops->own_predictors(gpu, &x, &filter, &w) == gpu->wgmma);
  const Tensor *wrong[][3] = {
      {&few, &filter, &w}, {&narrow, &filter, &w}, {&exact, &filter, &w}, {&x, &other, &w}, {&x, &filter, &wide}};
  for (int i = 0; i < COUNT(wrong); i++) EXPECT(!gpu->ops->own_predictors(gpu, wrong[i][0], wrong[i][1], wrong[i][2]));
}
