// The pyramids and RoIs that roi_align_forward and roi_align_backward are tested on; and RoIs in the memory of both
// devices, for the kernels against the reference.
#pragma once
#include "base/alloc.h"
#include "test/harness/detect.h"

// The pyramid that RoIAlign is tested on, for the reference against its definition and for the kernels against it.
enum { ROI_LEVELS = 3 };

// Levels meet where √area is 16 and 32.
static inline RoiAlign roi_pyramid(int size, int sampling, bool aligned) {
  return (RoiAlign){.size = size,
                    .sampling = sampling,
                    .aligned = aligned,
                    .levels = ROI_LEVELS,
                    .first_level = 2,
                    .scale = {.25f, .125f, .0625f},
                    .canonical_size = 32,
                    .canonical_level = 4,
                    .level_eps = 1e-6f};
}

enum { IMAGES = 2, CHANNELS = 5, ROIS = 24 };

static const int heights[ROI_LEVELS] = {16, 8, 4}, widths[ROI_LEVELS] = {20, 10, 5}; // of a 64 × 80 canvas

// RoIs of every size, a third of them partly outside, some thinner than a feature pixel; `count` is less than capacity.
static inline Rois rois_random(Fixture *f, Draw *r, int count) {
  Rois rois = fixture_rois(f, ROIS);
  *rois.count = count;
  for (int i = 0; i < count; i++) {
    double x = uniform(r, -10, 75), y = uniform(r, -10, 60), octave = uniform(r, 1, 6);
    set_box(&rois.box, i, x, y, x + exp2(octave + uniform(r, -1, 1)), y + exp2(octave + uniform(r, -1, 1)));
    rois.image[i] = i * IMAGES / count;
  }
  return rois;
}

static inline void features_random(Fixture *f, Draw *r, Tensor x[ROI_LEVELS]) {
  for (int l = 0; l < ROI_LEVELS; l++) {
    x[l] = fixture_map(f, IMAGES, heights[l], widths[l], CHANNELS);
    fill_random(r, &x[l], -1, 1);
  }
}

// ---- on the GPU -----------------------------------------------------------------------------------------------------

static const DType dtypes[] = {F32, BF16, F16};
enum { GPU_IMAGES = 2, MAX_ROIS = 600 };
static const int gpu_heights[ROI_LEVELS] = {37, 19, 1},
                 gpu_widths[ROI_LEVELS] = {21, 11, 1}; // of a 148 × 84 canvas, and a single pixel

// `terms` products summed on either side, and the one rounding to dtype; in units of dtype's.
static inline double sum_factor(DType dtype, double terms) {
  double unit = dtype == F32 ? 0x1p-24 : dtype == BF16 ? 0x1p-8 : 0x1p-11;
  return 1 + 2 * terms * 0x1p-24 / unit;
}

typedef struct RoiPairs {
  ArrayPair box, image, count;
  Rois side[2]; // cpu, gpu
} RoiPairs;

// Boxes of every size and place: the first ones on borders between levels, empty, inverted, outside, not a number.
static inline RoiPairs roi_pairs(int capacity, int count, uint64_t seed) {
  static const float odd[][4] = {{8, 8, 24, 24},      {8, 8, 40, 40},       {20, 30, 20, 30},    {30, 40, 10, 20},
                                 {-90, -90, -60, -9}, {300, 300, 340, 330}, {0, 0, 84, 148},     {-50, -50, 200, 300},
                                 {31.75f, 0, 32, 64}, {NAN, 1, 2, 3},       {5, 5, 5.01f, 5.01f}};
  float box[MAX_ROIS][4];
  int image[MAX_ROIS];
  uint64_t key = rng_key(seed, RNG_TEST);
  CHECK(capacity <= MAX_ROIS);
  for (int i = 0; i < capacity; i++) {
    float u[4];
    for (int k = 0; k < 4; k++) u[k] = rng_uniform(key, (uint64_t)(4 * i + k));
    float x = -10 + 90 * u[0], y = -10 + 150 * u[1], w = exp2f(6.5f * u[2]), h = exp2f(6.5f * u[3]);
    memcpy(box[i], i < COUNT(odd) ? odd[i] : (float[]){x, y, x + w, y + h}, sizeof box[i]);
    image[i] = i * GPU_IMAGES / capacity;
  }
  RoiPairs r = {.box = array_pair((size_t)capacity, sizeof box[0], box),
                .image = array_pair((size_t)capacity, sizeof image[0], image),
                .count = array_pair(1, sizeof count, &count)};
  for (int gpu = 0; gpu < 2; gpu++) {
    Rois *s = &r.side[gpu];
    *s = (Rois){.capacity = capacity, .box = tensor_packed(F32, capacity, 4)};
    s->box.data = gpu ? r.box.gpu : r.box.cpu;
    s->image = gpu ? r.image.gpu : r.image.cpu;
    s->count = gpu ? r.count.gpu : r.count.cpu;
  }
  return r;
}

static inline void roi_pairs_free(RoiPairs *r) {
  array_pair_check_equal(&r->box, r->box.n);
  array_pair_check_equal(&r->image, r->image.n);
  array_pair_check_equal(&r->count, 1);
  array_pair_free(&r->box);
  array_pair_free(&r->image);
  array_pair_free(&r->count);
}

static inline Tensor magnitudes(const Tensor *t) {
  Tensor m = *t;
  m.data = xmalloc(tensor_bytes(t));
  for (size_t i = 0; i < tensor_elements(t); i++) ((float *)m.data)[i] = fabsf(((const float *)t->data)[i]);
  return m;
}

static inline bool same_bytes(const TensorPair *a, const TensorPair *b, size_t bytes) {
  void *x = gpu_fetch(a->gpu.data, bytes), *y = gpu_fetch(b->gpu.data, bytes);
  bool same = !memcmp(x, y, bytes);
  free(x);
  free(y);
  return same;
}
