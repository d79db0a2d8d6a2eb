// Catches RoIAlign that reads the wrong pixels or level, and gradients that do not match it.
//
// Compares RoIAlign with its definition, its gradient with finite differences, and tests what a Dest asks for; compares
// the GPU, in every type, with the CPU. Both take levels, positions and weights from exact/roi_bins.h, bit for bit, so
// that only the sums of weighted features differ, by their rounding.
#include <omp.h>
#include "base/alloc.h"
#include "nn/device.h"
#include "nn/ops.h"
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

// The level by the formula of the paper, as torchvision's LevelMapper has it.
static int naive_level(const RoiAlign *p, const double box[4]) {
  double side = sqrt((box[2] - box[0]) * (box[3] - box[1]));
  int level = (int)floor(p->canonical_level + log2(side / p->canonical_size) + p->level_eps) - p->first_level;
  return MIN(MAX(level, 0), p->levels - 1);
}

// RoIs of every size, a third of them partly outside, some thinner than a feature pixel; `count` is less than capacity.
static Rois rois_random(Fixture *f, Draw *r, int count) {
  Rois rois = fixture_rois(f, ROIS);
  *rois.count = count;
  for (int i = 0; i < count; i++) {
    double x = uniform(r, -10, 75), y = uniform(r, -10, 60), octave = uniform(r, 1, 6);
    set_box(&rois.box, i, x, y, x + exp2(octave + uniform(r, -1, 1)), y + exp2(octave + uniform(r, -1, 1)));
    rois.image[i] = i * IMAGES / count;
  }
  return rois;
}

static void features_random(Fixture *f, Draw *r, Tensor x[ROI_LEVELS]) {
  for (int l = 0; l < ROI_LEVELS; l++) {
    x[l] = fixture_map(f, IMAGES, heights[l], widths[l], CHANNELS);
    fill_random(r, &x[l], -1, 1);
  }
}

// Image n of a level as doubles.
static double *as_doubles(const Tensor *x, int n) {
  size_t size = (size_t)x->h * x->w * x->ldc;
  double *map = xmalloc(size * sizeof *map);
  for (size_t i = 0; i < size; i++) map[i] = get_at(x, n * size + i);
  return map;
}

static double naive_bin(const RoiAlign *p, const Rois *rois, const Tensor *x, int r, int py, int px, int c) {
  double box[4];
  get_box(&rois->box, r, box);
  int l = naive_level(p, box);
  double *map = as_doubles(&x[l], rois->image[r]);
  double v = naive_roi_align(map + c, x[l].h, x[l].w, x[l].ldc, p, p->scale[l], box, py, px);
  free(map);
  return v;
}

TEST_OP(roi_align_forward_random) {
  for (int variant = 0; variant < 4; variant++) {
    Draw r = draw_begin(100 + variant);
    RoiAlign p = roi_pyramid(3, variant & 1 ? 0 : 2, variant & 2);
    Tensor x[ROI_LEVELS], y = fixture_map(f, ROIS, 3, 3, CHANNELS);
    features_random(f, &r, x);
    Rois rois = rois_random(f, &r, ROIS - 4);
    RUN(f, roi_align_forward, &p, &rois, x, &y);
    // A position below 32 is off by at most 6 roundings; the map changes by at most 2 a pixel along either axis. Then
    // a mean of values below 1 out of 4 products each.
    double tolerance = (2 * 2 * 6 * 32 + 16) * epsilon(f);
    bool seen[ROI_LEVELS] = {0};
    for (int i = 0; i < ROIS - 4; i++) {
      double box[4];
      get_box(&rois.box, i, box);
      seen[naive_level(&p, box)] = true;
      for (int py = 0; py < 3; py++)
        for (int px = 0; px < 3; px++) {
          int c = (i + py + px) % CHANNELS;
          EXPECT_NEAR(get_at(&y, pixel(&y, i, py, px) + c), naive_bin(&p, &rois, x, i, py, px, c), tolerance);
          for (int lane = CHANNELS; lane < y.ldc; lane++) EXPECT_NEAR(get_at(&y, pixel(&y, i, py, px) + lane), 0, 0);
        }
    }
    for (int l = 0; l < ROI_LEVELS; l++) EXPECT(seen[l]);
    EXPECT(isnan(get_at(&y, pixel(&y, ROIS - 4, 0, 0)))); // rows past the count are left alone
    fixture_clear(f);
  }
}

TEST_OP(roi_align_by_hand) {
  // One level, one channel, x = column: inside, a bin's mean is its centre.
  RoiAlign p = {.size = 2,
                .sampling = 2,
                .levels = 1,
                .first_level = 2,
                .scale = {1},
                .canonical_size = 224,
                .canonical_level = 4};
  Tensor x = fixture_map(f, 1, 8, 8, 1), y = fixture_map(f, 5, 2, 2, 1);
  for (int i = 0; i < 64; i++) set_at(&x, (size_t)i * 8, i % 8);
  Rois rois = fixture_rois(f, 5);
  *rois.count = 5;
  for (int i = 0; i < 5; i++) rois.image[i] = 0;
  set_box(&rois.box, 0, 1, 1, 5, 5);  // bins centred at 2 and 4
  set_box(&rois.box, 1, 3, 3, 3, 3);  // as large as a pixel at least: centres 3.25, 3.75
  set_box(&rois.box, 2, -3, 0, 1, 4); // samples -2.5 (worth 0), -1.5 (0), -.5 (the edge, 0), .5
  set_box(&rois.box, 3, 6, 0, 10, 4); // samples 6.5, 7.5 (the edge, 7); 8.5, 9.5 (0)
  set_box(&rois.box, 4, 20, 20, 30, 30);
  RUN(f, roi_align_forward, &p, &rois, &x, &y);
  const double want[5][2] = {{2, 4}, {3.25, 3.75}, {0, .25}, {6.75, 0}, {0, 0}};
  for (int i = 0; i < 5; i++)
    for (int px = 0; px < 2; px++)
      EXPECT_NEAR(get_at(&y, pixel(&y, i, 0, px)), want[i][px],
                  64 * epsilon(f)); // roundings of positions and values below 32;
  p.aligned = true;                 // half a pixel to the left, and a RoI may be empty
  RUN(f, roi_align_forward, &p, &rois, &x, &y);
  EXPECT_NEAR(get_at(&y, pixel(&y, 0, 0, 0)), 1.5, 64 * epsilon(f));
  EXPECT_NEAR(get_at(&y, pixel(&y, 1, 0, 0)), 2.5, 64 * epsilon(f));
  p.sampling = 0;
  RUN(f, roi_align_forward, &p, &rois, &x, &y);
  EXPECT_NEAR(get_at(&y, pixel(&y, 1, 0, 0)), 0, 0); // no samples at all
}

// A RoI with an area on the border between two levels belongs to the upper, for every border, in either precision.
TEST_OP(roi_align_level_borders) {
  RoiAlign p = {.size = 1,
                .sampling = 1,
                .levels = 4,
                .first_level = 2,
                .scale = {1, 1, 1, 1},
                .canonical_size = 224,
                .canonical_level = 4};
  Tensor x[4], y = fixture_map(f, 1, 1, 1, 1);
  for (int l = 0; l < 4; l++) {
    x[l] = fixture_map(f, 1, 1, 1, 1);
    set_at(&x[l], 0, l);
  }
  const double sides[] = {1, 111.99, 112, 223.99, 224, 447.99, 448, 5000};
  const int levels[] = {0, 0, 1, 1, 2, 2, 3, 3};
  Rois rois = fixture_rois(f, 1);
  *rois.count = 1;
  rois.image[0] = 0;
  for (int i = 0; i < 2 * COUNT(sides); i++) {
    double half = sides[i / 2] / 2; // centred on the only pixel
    p.level_eps = i % 2 ? 1e-6f : 0;
    set_box(&rois.box, 0, -half, -half, half, half);
    RUN(f, roi_align_forward, &p, &rois, x, &y);
    EXPECT_NEAR(get_at(&y, 0), levels[i / 2], 0);
  }
}

// The pixel of RoIs that read level l is l. size_eps moves the border at 224 to 224 · (1 - 1e-6) = 223.99978; with
// legacy widths a RoI from 0 to 223 is 224 pixels wide.
TEST_OP(roi_align_levels_of_conventions) {
  Tensor x[4], y = fixture_map(f, 1, 1, 1, 1);
  for (int l = 0; l < 4; l++) {
    x[l] = fixture_map(f, 1, 1, 1, 1);
    set_at(&x[l], 0, l);
  }
  Rois rois = fixture_rois(f, 1);
  *rois.count = 1;
  rois.image[0] = 0;
  const struct {
    double side;
    float size_eps, extra;
    int level;
  } cases[] = {{223.9999, 1e-6f, 0, 2}, {223.9999, 0, 0, 1}, {223.999, 1e-6f, 0, 1}, {223.9999, 1e-8f, 0, 1},
               {224, 1e-8f, 0, 2},      {223, 0, 1, 2},      {222.9, 1e-6f, 1, 1},   {447, 0, 1, 3}};
  for (int i = 0; i < COUNT(cases); i++) {
    RoiAlign p = {.size = 1,
                  .sampling = 1,
                  .levels = 4,
                  .first_level = 2,
                  .scale = {1, 1, 1, 1},
                  .canonical_size = 224,
                  .canonical_level = 4,
                  .size_eps = cases[i].size_eps,
                  .extra = cases[i].extra};
    double half = cases[i].side / 2;
    set_box(&rois.box, 0, -half, -half, half, half);
    RUN(f, roi_align_forward, &p, &rois, x, &y);
    EXPECT_NEAR(get_at(&y, 0), cases[i].level, 0);
  }
}

// ---- backward -------------------------------------------------------------------------------------------------------

static double dot(const Tensor *a, const Tensor *b, int n) {
  double sum = 0;
  for (size_t i = 0; i < (size_t)n * a->h * a->w * a->ldc; i++) sum += get_at(a, i) * get_at(b, i);
  return sum;
}

// y is linear in x, so a difference with step 1 is the derivative but for rounding: some tens of products below 1.
TEST_DOUBLE(roi_align_backward_is_the_gradient) {
  for (int variant = 0; variant < 4; variant++) {
    Draw r = draw_begin(110 + variant);
    RoiAlign p = roi_pyramid(3, variant & 1 ? 0 : 2, variant & 2);
    Tensor x[ROI_LEVELS], y = fixture_map(f, ROIS, 3, 3, CHANNELS), dy = fixture_map(f, ROIS, 3, 3, CHANNELS);
    Dest dx[ROI_LEVELS] = {0};
    features_random(f, &r, x);
    fill_random(&r, &dy, -1, 1);
    for (int l = 0; l < ROI_LEVELS; l++) dx[l].t = fixture_map(f, IMAGES, heights[l], widths[l], CHANNELS);
    Rois rois = rois_random(f, &r, ROIS - 4);
    RUN(f, roi_align_backward, &p, &rois, &dy, dx);
    for (int i = 0; i < 60; i++) {
      int l = below(&r, ROI_LEVELS);
      size_t at = pixel(&x[l], below(&r, IMAGES), below(&r, heights[l]), below(&r, widths[l])) + below(&r, CHANNELS);
      double value = get_at(&x[l], at), low, high;
      RUN(f, roi_align_forward, &p, &rois, x, &y);
      low = dot(&y, &dy, ROIS - 4);
      set_at(&x[l], at, value + 1);
      RUN(f, roi_align_forward, &p, &rois, x, &y);
      high = dot(&y, &dy, ROIS - 4);
      set_at(&x[l], at, value);
      EXPECT_NEAR(get_at(&dx[l].t, at), high - low, 1e-11);
    }
    // <dy, F x> = <Fᵀ dy, x> looks at every element at once.
    double inner = 0;
    for (int l = 0; l < ROI_LEVELS; l++) inner += dot(&dx[l].t, &x[l], IMAGES);
    RUN(f, roi_align_forward, &p, &rois, x, &y);
    EXPECT_NEAR(inner, dot(&y, &dy, ROIS - 4), 1e-11);
    fixture_clear(f);
  }
}

// Every combination of accumulate, mask and addend (none, equal, half, double size) against the plain gradient.
TEST_OP(roi_align_backward_dest) {
  for (int variant = 0; variant < 16; variant++) {
    Draw r = draw_begin(120 + variant);
    RoiAlign p = roi_pyramid(3, 2, false);
    Tensor dy = fixture_map(f, ROIS, 3, 3, CHANNELS), before[ROI_LEVELS], mask[ROI_LEVELS], addend[ROI_LEVELS];
    Dest plain[ROI_LEVELS] = {0}, dx[ROI_LEVELS] = {0};
    fill_random(&r, &dy, -1, 1);
    int type = variant / 4;
    for (int l = 0; l < ROI_LEVELS; l++) {
      int h = heights[l], w = widths[l];
      plain[l].t = fixture_map(f, IMAGES, h, w, CHANNELS);
      dx[l].t = fixture_map(f, IMAGES, h, w, CHANNELS);
      before[l] = fixture_map(f, IMAGES, h, w, CHANNELS);
      mask[l] = fixture_map(f, IMAGES, h, w, CHANNELS);
      addend[l] = type == 2   ? fixture_map(f, IMAGES, (h + 1) / 2, (w + 1) / 2, CHANNELS)
                  : type == 3 ? fixture_map(f, IMAGES, 2 * h, 2 * w - 1, CHANNELS)
                              : fixture_map(f, IMAGES, h, w, CHANNELS);
      fill_random(&r, &before[l], -1, 1);
      fill_random(&r, &mask[l], -1, 1);
      fill_random(&r, &addend[l], -1, 1);
      dx[l].accumulate = variant & 1;
      if (dx[l].accumulate) memcpy(dx[l].t.data, before[l].data, tensor_bytes(&before[l]));
      if (variant & 2) dx[l].mask = &mask[l];
      if (type > 0) dx[l].addend = &addend[l];
    }
    Rois rois = rois_random(f, &r, ROIS);
    RUN(f, roi_align_backward, &p, &rois, &dy, plain);
    RUN(f, roi_align_backward, &p, &rois, &dy, dx);
    for (int l = 0; l < ROI_LEVELS; l++)
      for (int i = 0; i < IMAGES * heights[l] * widths[l]; i++)
        for (int c = 0; c < dx[l].t.ldc; c++) {
          int n = i / (heights[l] * widths[l]), y = i / widths[l] % heights[l], x = i % widths[l];
          size_t at = (size_t)i * dx[l].t.ldc + c;
          double want = get_at(&plain[l].t, at) + (variant & 1 ? get_at(&before[l], at) : 0);
          if (type == 1) want += get_at(&addend[l], at);
          if (type == 2) want += get_at(&addend[l], pixel(&addend[l], n, y / 2, x / 2) + c);
          for (int k = 0; k < 4 && type == 3; k++)
            if (2 * x + k % 2 < addend[l].w)
              want += get_at(&addend[l], pixel(&addend[l], n, 2 * y + k / 2, 2 * x + k % 2) + c);
          if ((variant & 2) && !(get_at(&mask[l], at) > 0)) want = 0;
          EXPECT_NEAR(get_at(&dx[l].t, at), c < CHANNELS ? want : 0, 8 * epsilon(f) * (8 + fabs(want)));
        }
    fixture_clear(f);
  }
}

TEST_OP(roi_align_without_rois) {
  RoiAlign p = roi_pyramid(3, 2, false);
  Tensor x[ROI_LEVELS], y = fixture_map(f, ROIS, 3, 3, CHANNELS), dy = fixture_map(f, ROIS, 3, 3, CHANNELS);
  Dest dx[ROI_LEVELS] = {0};
  Draw r = draw_begin(140);
  features_random(f, &r, x);
  for (int l = 0; l < ROI_LEVELS; l++) dx[l].t = fixture_map(f, IMAGES, heights[l], widths[l], CHANNELS);
  Rois rois = fixture_rois(f, ROIS);
  *rois.count = 0;
  RUN(f, roi_align_forward, &p, &rois, x, &y);
  RUN(f, roi_align_backward, &p, &rois, &dy, dx);
  EXPECT(isnan(get_at(&y, 0)));
  for (int l = 0; l < ROI_LEVELS; l++)
    for (size_t i = 0; i < tensor_elements(&dx[l].t); i++) EXPECT_NEAR(get_at(&dx[l].t, i), 0, 0);
}

TEST_OP(roi_align_threads) {
  RoiAlign p = roi_pyramid(4, 2, false);
  Draw r = draw_begin(141);
  Tensor x[ROI_LEVELS], y[3], dy = fixture_map(f, ROIS, 4, 4, CHANNELS);
  Dest dx[3][ROI_LEVELS] = {0};
  features_random(f, &r, x);
  fill_random(&r, &dy, -1, 1);
  Rois rois = rois_random(f, &r, ROIS);
  int before = omp_get_max_threads();
  for (int t = 0; t < 3; t++) {
    omp_set_num_threads(t + 1);
    y[t] = fixture_map(f, ROIS, 4, 4, CHANNELS);
    for (int l = 0; l < ROI_LEVELS; l++) dx[t][l].t = fixture_map(f, IMAGES, heights[l], widths[l], CHANNELS);
    RUN(f, roi_align_forward, &p, &rois, x, &y[t]);
    RUN(f, roi_align_backward, &p, &rois, &dy, dx[t]);
    EXPECT(!memcmp(y[0].data, y[t].data, tensor_bytes(&y[0])));
    for (int l = 0; l < ROI_LEVELS; l++) EXPECT(!memcmp(dx[0][l].t.data, dx[t][l].t.data, tensor_bytes(&dx[0][l].t)));
  }
  omp_set_num_threads(before);
}

// ---- on the GPU -----------------------------------------------------------------------------------------------------

static const DType dtypes[] = {F32, BF16, F16};
enum { GPU_IMAGES = 2, MAX_ROIS = 600 };
static const int gpu_heights[ROI_LEVELS] = {37, 19, 1},
                 gpu_widths[ROI_LEVELS] = {21, 11, 1}; // of a 148 × 84 canvas, and a single pixel

// `terms` products summed on either side, and the one rounding to dtype; in units of dtype's.
static double sum_factor(DType dtype, double terms) {
  double unit = dtype == F32 ? 0x1p-24 : dtype == BF16 ? 0x1p-8 : 0x1p-11;
  return 1 + 2 * terms * 0x1p-24 / unit;
}

typedef struct RoiPairs {
  ArrayPair box, image, count;
  Rois side[2]; // cpu, gpu
} RoiPairs;

// Boxes of every size and place: the first ones on borders between levels, empty, inverted, outside, not a number.
static RoiPairs roi_pairs(int capacity, int count, uint64_t seed) {
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

static void roi_pairs_free(RoiPairs *r) {
  array_pair_check_equal(&r->box, r->box.n);
  array_pair_check_equal(&r->image, r->image.n);
  array_pair_check_equal(&r->count, 1);
  array_pair_free(&r->box);
  array_pair_free(&r->image);
  array_pair_free(&r->count);
}

static Tensor magnitudes(const Tensor *t) {
  Tensor m = *t;
  m.data = xmalloc(tensor_bytes(t));
  for (size_t i = 0; i < tensor_elements(t); i++) ((float *)m.data)[i] = fabsf(((const float *)t->data)[i]);
  return m;
}

static bool same_bytes(const TensorPair *a, const TensorPair *b, size_t bytes) {
  void *x = gpu_fetch(a->gpu.data, bytes), *y = gpu_fetch(b->gpu.data, bytes);
  bool same = !memcmp(x, y, bytes);
  free(x);
  free(y);
  return same;
}

static void check_forward(Device *gpu, DType dtype, const RoiAlign *p, int channels, int capacity, int count) {
  RoiPairs rois = roi_pairs(capacity, count, 7);
  TensorPair x[ROI_LEVELS], y[2];
  Tensor sides[2][ROI_LEVELS], positive[ROI_LEVELS];
  for (int l = 0; l < ROI_LEVELS; l++) {
    x[l] = pair_random(dtype, GPU_IMAGES, gpu_heights[l], gpu_widths[l], channels, 1, (uint64_t)l + 1);
    sides[0][l] = x[l].cpu;
    sides[1][l] = x[l].gpu;
    positive[l] = magnitudes(&x[l].cpu);
  }
  for (int run = 0; run < 2; run++) {
    y[run] = pair_poisoned(dtype, capacity, p->size, p->size, channels);
    gpu->ops->roi_align_forward(gpu, p, &rois.side[1], sides[1], &y[run].gpu);
  }
  Tensor bound = y[1].cpu; // the sums of absolute values
  cpu_device()->ops->roi_align_forward(cpu_device(), p, &rois.side[0], sides[0], &y[0].cpu);
  cpu_device()->ops->roi_align_forward(cpu_device(), p, &rois.side[0], positive, &bound);
  y[0].cpu.count = rois.side[0].count;
  // Four products a sample. Adaptive sampling takes one a pixel, of which the map has no more than these inside.
  double samples = p->sampling ? p->sampling * p->sampling : gpu_heights[0] * gpu_widths[0];
  if (!pair_check(&y[0], bound.data, sum_factor(dtype, 4 * samples + 4)))
    printf("  dtype %d, size %d, sampling %d, aligned %d, %d channels, %d of %d RoIs\n", dtype, p->size, p->sampling,
           p->aligned, channels, count, capacity);
  size_t row = tensor_bytes(&y[0].gpu) / (size_t)capacity;
  EXPECT(same_bytes(&y[0], &y[1], row * (size_t)count));
  y[0].cpu.count = NULL;
  for (int i = 0; i < 2; i++) {
    pair_check_guards(&y[i], false);
    pair_free(&y[i]);
  }
  for (int l = 0; l < ROI_LEVELS; l++) {
    pair_check_guards(&x[l], true);
    pair_free(&x[l]);
    free(positive[l].data);
  }
  roi_pairs_free(&rois);
}

TEST(cuda_roi_align_forward) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int variant = 0; variant < 4; variant++) {
      RoiAlign p = roi_pyramid(variant & 1 ? 3 : 7, variant & 1 ? 0 : 2, variant & 2);
      check_forward(gpu, dtypes[d], &p, 5, 40, 33);
      check_forward(gpu, dtypes[d], &p, 264, 14, 14);
    }
  RoiAlign mlperf = roi_pyramid(7, 2, false); // other borders between levels, sides one longer
  mlperf.level_eps = 0;
  mlperf.size_eps = 1e-6f;
  mlperf.extra = 1;
  check_forward(gpu, F32, &mlperf, 8, 300, 300);
  RoiAlign one = roi_pyramid(1, 1, false), none = roi_pyramid(14, 2, false);
  check_forward(gpu, F32, &one, 1, 30, 30);
  check_forward(gpu, F32, &none, 8, 20, 0);
}

// Each RoI gives to a pixel through at most 2 · size samples along either axis: where there are more they lie half a
// pixel apart or further.
static double backward_terms(const RoiAlign *p, int count) { return 4. * p->size * p->size * count + 8; }

static void check_backward(Device *gpu, DType dtype, const RoiAlign *p, int channels, int capacity, int count) {
  RoiPairs rois = roi_pairs(capacity, count, 8);
  TensorPair dy = pair_random(dtype, capacity, p->size, p->size, channels, 1, 9), dx[2][ROI_LEVELS];
  Tensor positive = magnitudes(&dy.cpu);
  Dest cpu[ROI_LEVELS] = {0}, bound[ROI_LEVELS] = {0};
  for (int run = 0; run < 2; run++) {
    Dest d[ROI_LEVELS] = {0};
    for (int l = 0; l < ROI_LEVELS; l++) {
      dx[run][l] = pair_poisoned(dtype, GPU_IMAGES, gpu_heights[l], gpu_widths[l], channels);
      d[l].t = dx[run][l].gpu;
      (run ? bound : cpu)[l].t = dx[run][l].cpu;
    }
    gpu->ops->roi_align_backward(gpu, p, &rois.side[1], &dy.gpu, d);
  }
  cpu_device()->ops->roi_align_backward(cpu_device(), p, &rois.side[0], &dy.cpu, cpu);
  cpu_device()->ops->roi_align_backward(cpu_device(), p, &rois.side[0], &positive, bound);
  for (int l = 0; l < ROI_LEVELS; l++) {
    if (!pair_check(&dx[0][l], bound[l].t.data, sum_factor(dtype, backward_terms(p, count))))
      printf("  level %d, dtype %d, size %d, sampling %d, aligned %d, %d channels, %d of %d RoIs\n", l, dtype, p->size,
             p->sampling, p->aligned, channels, count, capacity);
    EXPECT(same_bytes(&dx[0][l], &dx[1][l], tensor_bytes(&dx[0][l].gpu)));
    for (int run = 0; run < 2; run++) {
      pair_check_guards(&dx[run][l], false);
      pair_free(&dx[run][l]);
    }
  }
  pair_check_guards(&dy, true);
  pair_free(&dy);
  free(positive.data);
  roi_pairs_free(&rois);
}

TEST(cuda_roi_align_backward) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int variant = 0; variant < 4; variant++) {
      RoiAlign p = roi_pyramid(variant & 1 ? 3 : 7, variant & 1 ? 0 : 2, variant & 2);
      check_backward(gpu, dtypes[d], &p, 5, 40, 33);
      check_backward(gpu, dtypes[d], &p, 264, 14, 14);
    }
  RoiAlign one = roi_pyramid(1, 1, false), mask = roi_pyramid(14, 2, false);
  check_backward(gpu, F32, &one, 1, 30, 30);
  check_backward(gpu, F32, &mask, 8, 20, 20);
  check_backward(gpu, F32, &mask, 8, 20, 0);        // everything is zero
  check_backward(gpu, F32, &one, 8, MAX_ROIS, 513); // more than a block looks at in one round
}

// The Dest of the middle level; the other levels are written without one.
typedef struct DestContext {
  RoiAlign p;
  RoiPairs rois;
  TensorPair dy, other[ROI_LEVELS];
} DestContext;

static void backward_through(Device *dev, bool gpu, void *context, const Dest *d) {
  DestContext *c = context;
  Dest dx[ROI_LEVELS] = {{.t = *pair_side(&c->other[0], gpu)}, *d, {.t = *pair_side(&c->other[2], gpu)}};
  dev->ops->roi_align_backward(dev, &c->p, &c->rois.side[gpu], pair_side(&c->dy, gpu), dx);
}

TEST(cuda_roi_align_backward_every_dest) {
  if (!gpu_device()) return;
  enum { CHANNELS = 11, ROIS = 30 };
  for (int d = 0; d < COUNT(dtypes); d++) {
    DestContext c = {.p = roi_pyramid(3, 2, false), .rois = roi_pairs(ROIS, ROIS, 10)};
    c.dy = pair_random(dtypes[d], ROIS, 3, 3, CHANNELS, 1, 11);
    for (int l = 0; l < ROI_LEVELS; l++)
      c.other[l] = pair_poisoned(dtypes[d], GPU_IMAGES, gpu_heights[l], gpu_widths[l], CHANNELS);
    TensorPair *shape = &c.other[1];
    Tensor positive = magnitudes(&c.dy.cpu), dy = c.dy.cpu;
    c.dy.cpu = positive;
    backward_through(cpu_device(), false, &c, &(Dest){.t = shape->cpu});
    c.dy.cpu = dy;
    pair_check_dests(backward_through, &c, shape, shape->cpu.data, sum_factor(dtypes[d], backward_terms(&c.p, ROIS)),
                     12);
    free(positive.data);
    pair_check_guards(&c.dy, true);
    pair_free(&c.dy);
    for (int l = 0; l < ROI_LEVELS; l++) {
      pair_check_guards(&c.other[l], false);
      pair_free(&c.other[l]);
    }
    roi_pairs_free(&c.rois);
  }
}
