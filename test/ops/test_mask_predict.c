// Catches masks predicted in one pass that differ from those of the separate ops.
//
// Compares mask_predict with the ops that it replaces, and the GPU with the CPU. Operands are small integers, and the
// classes' weights and bias are small integers over a power of two: hidden values fit into 16 bits, all sums are exact
// in any order, and logits are equal; only the GPU's sigmoid may differ.
#include "test/harness/gpu_conv.h"
#include "test/harness/op_fixture.h"

static void fill_whole(Draw *r, const Tensor *t, double unit) {
  for (size_t i = 0; i < tensor_elements(t); i++)
    set_at(t, i, i % (size_t)t->ldc < (size_t)t->c ? (below(r, 5) - 2) * unit : 0);
}

TEST_CPUS(mask_predict_is_its_parts) {
  enum { GROUPS = 3, CAPACITY = 2, ROWS = 4, H = 3, W = 5, C = 20, HIDDEN = 41, CLASSES = 7 };
  static const int counts[GROUPS] = {1, 0, 2};
  Draw r = draw_begin(161);
  Boxes detections = fixture_boxes(f, GROUPS, CAPACITY);
  memcpy(detections.count, counts, sizeof counts);
  for (int i = 0; i < GROUPS * CAPACITY; i++) detections.index[i] = CLASSES * below(&r, 100) + 1 + i;
  Tensor x = fixture_map(f, ROWS, H, W, C), hidden = fixture_map(f, ROWS, 2 * H, 2 * W, HIDDEN),
         logits = fixture_map(f, ROWS, 2 * H, 2 * W, CLASSES), expected = fixture_single(f, ROWS, 2 * H, 2 * W),
         probs = fixture_single(f, ROWS, 2 * H, 2 * W), bias = fixture_packed(f, 1, HIDDEN),
         class_bias = fixture_packed(f, 1, CLASSES);
  MaskPredictor p = {.filter = fixture_map(f, C, 2, 2, HIDDEN),
                     .classes = fixture_map(f, CLASSES, 1, 1, HIDDEN),
                     .bias = bias.data,
                     .class_bias = class_bias.data};
  fill_whole(&r, &x, 1);
  fill_whole(&r, &p.filter, 1);
  fill_whole(&r, &bias, 1);
  fill_whole(&r, &p.classes, 1. / 64);
  fill_whole(&r, &class_bias, 1. / 64);
  RUN(f, mask_predict, &detections, &x, &p, &probs);
  const Conv up = {.stride = 2}, one = {.stride = 1};
  const Dest to_hidden = {.t = hidden, .bias = p.bias, .relu = true}, to_logits = {.t = logits, .bias = p.class_bias};
  RUN(f, conv_dgrad, &up, 1, &x, &p.filter, &to_hidden);
  RUN(f, conv_forward, &one, 1, &hidden, &p.classes, &to_logits);
  RUN(f, mask_select, &detections, &logits, &expected);
  const size_t valid = (size_t)3 * 2 * H * 2 * W;
  int between = 0;
  for (size_t i = 0; i < valid; i++) {
    EXPECT(get_at(&probs, i) == get_at(&expected, i));
    between += get_at(&probs, i) > 0.01 && get_at(&probs, i) < 0.99;
  }
  EXPECT(between > (int)valid / 4);
  EXPECT(isnan(get_at(&probs, valid)));
}

// ---- on the GPU -----------------------------------------------------------------------------------------------------

enum { MOST_GROUPS = 8 };

typedef struct PredictCase {
  int c, hidden, h, w, classes, groups, capacity, counts[MOST_GROUPS], granted;
} PredictCase;

static TensorPair drawn(Draw *d, DType dtype, int n, int h, int w, int c, int limit, float unit) {
  size_t elements = (size_t)n * (size_t)h * (size_t)w * (size_t)c;
  float *values = xmalloc(elements * sizeof *values);
  for (size_t i = 0; i < elements; i++) values[i] = (float)(below(d, 2 * limit + 1) - limit) * unit;
  TensorPair t = pair_values(dtype, n, h, w, c, values);
  free(values);
  return t;
}
static TensorPair drawn_vector(Draw *d, int c, float unit) {
  float *values = xmalloc((size_t)c * sizeof *values);
  for (int i = 0; i < c; i++) values[i] = (float)(below(d, 5) - 2) * unit;
  TensorPair t = pair_packed(1, c, values);
  free(values);
  return t;
}

static void check_case(Device *gpu, DType dtype, const PredictCase *p, uint64_t seed) {
  Draw d = draw_begin((int)seed);
  const int slots = p->groups * p->capacity;
  int rows = 0, *classes = xmalloc((size_t)slots * sizeof *classes);
  for (int i = 0; i < p->groups; i++) rows += p->counts[i];
  for (int i = 0; i < slots; i++) classes[i] = below(&d, 1000) * p->classes + below(&d, p->classes);
  ArrayPair index = array_pair((size_t)slots, sizeof *classes, classes);
  ArrayPair count = array_pair((size_t)p->groups, sizeof(int), p->counts);
  const float unit = 1.f / 256;
  TensorPair x = drawn(&d, dtype, slots, p->h, p->w, p->c, 2, 1);
  TensorPair filter = drawn(&d, dtype, p->c, 2, 2, p->hidden, 1, 1);
  TensorPair weights = drawn(&d, dtype, p->classes, 1, 1, p->hidden, 2, unit);
  TensorPair bias = drawn_vector(&d, p->hidden, 1), class_bias = drawn_vector(&d, p->classes, unit);
  TensorPair probs = pair_packed(slots * 4 * p->h * p->w, 1, NULL);
  pair_rows(&x, rows);
  for (int side = 0; side < 2; side++) {
    Tensor *t = side ? &probs.gpu : &probs.cpu;
    t->n = slots;
    t->h = 2 * p->h;
    t->w = 2 * p->w;
    const Boxes detections = {.groups = p->groups,
                              .capacity = p->capacity,
                              .index = array_pair_data(&index, side),
                              .count = array_pair_data(&count, side)};
    const MaskPredictor m = {.filter = *pair_side(&filter, side),
                             .classes = *pair_side(&weights, side),
                             .bias = pair_data(&bias, side),
                             .class_bias = pair_data(&class_bias, side)};
    Device *dev = side ? gpu : cpu_device();
    if (side) gpu->granted = MIN(p->granted, gpu->multiprocessors);
    dev->ops->mask_predict(dev, &detections, pair_side(&x, side), &m, t);
    gpu->granted = gpu->multiprocessors;
  }
  pair_rows(&probs, rows);
  if (!pair_check(&probs, NULL, 12)) // as of mask_select
    printf("  dtype %d, %d -> %d channels, %d x %d, %d classes, %d rows, %d granted\n", dtype, p->c, p->hidden, p->h,
           p->w, p->classes, rows, p->granted);
  pair_check_guards(&probs, false);
  TensorPair *inputs[] = {&x, &filter, &weights, &bias, &class_bias};
  for (int i = 0; i < COUNT(inputs); i++) {
    pair_check_guards(inputs[i], true);
    pair_free(inputs[i]);
  }
  pair_free(&probs);
  array_pair_free(&index);
  array_pair_free(&count);
  free(classes);
}

// Torchvision's sizes; channels that fill a part of a panel or of a pair of eights, and one; detections of the fewest
// pixels and of odd numbers of them, so that a warp's rows, and a tile's, are of several; no rows, one, all; images
// without any; many tiles for a block of each tap, an even and an odd number.
static const PredictCase cases[] = {
    {256, 256, 14, 14, 91, 3, 7, {5, 0, 7}, 132},
    {256, 256, 14, 14, 91, 2, 6, {6, 6}, 4},
    {64, 64, 14, 14, 3, 8, 10, {10, 10, 0, 3, 10, 0, 0, 9}, 8},
    {40, 72, 4, 4, 5, 4, 9, {0, 9, 1, 9}, 4},
    {8, 8, 5, 7, 2, 1, 3, {3}, 132},
    {200, 248, 7, 3, 12, 2, 40, {39, 40}, 12},
    {1, 1, 16, 1, 1, 1, 1, {1}, 132},
    {130, 20, 4, 5, 81, 2, 2, {0, 0}, 132},
    {256, 130, 28, 28, 4, 1, 4, {3}, 100},
    {72, 256, 6, 6, 20, 5, 30, {30, 30, 30, 30, 30}, 4},
};

TEST_TIER(cuda_mask_predict, 1) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  if (!gpu->wgmma) return test_skip("mask_predict needs a Hopper GPU, sm_90a");
  for (int i = 0; i < COUNT(cases); i++) {
    check_case(gpu, BF16, &cases[i], (uint64_t)i);
    check_case(gpu, F16, &cases[i], (uint64_t)i);
  }
}
