// Catches RoIAlign that reads the wrong pixels or level, and gradients that do not follow it.
//
// RoIAlign on the GPU against the CPU reference. Both take levels, positions and weights from exact/roi_bins.h, bit for
// bit, so that only the sums of weighted features differ, by their rounding.
#include "base/alloc.h"
#include "base/rng.h"
#include "test/harness/gpu.h"
#include "test/harness/roi_cases.h"

enum { IMAGES = 2, MAX_ROIS = 600 };

static const DType dtypes[] = {F32, BF16, F16};
static const int heights[ROI_LEVELS] = {37, 19, 1},
                 widths[ROI_LEVELS] = {21, 11, 1}; // of a 148 × 84 canvas, and a single pixel

// `terms` products summed on either side, and the one rounding to dtype; in units of dtype's.
static double sum_factor(DType dtype, double terms) {
  double unit = dtype == F32 ? 0x1p-24 : dtype == BF16 ? 0x1p-8 : 0x1p-11;
  return 1 + 2 * terms * 0x1p-24 / unit;
}

typedef struct TwinRois {
  TwinArray box, image, count;
  Rois side[2]; // cpu, gpu
} TwinRois;

// Boxes of every size and place: the first ones on borders between levels, empty, inverted, outside, not a number.
static TwinRois twin_rois(int capacity, int count, uint64_t seed) {
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
    image[i] = i * IMAGES / capacity;
  }
  TwinRois r = {.box = twin_array((size_t)capacity, sizeof box[0], box),
                .image = twin_array((size_t)capacity, sizeof image[0], image),
                .count = twin_array(1, sizeof count, &count)};
  for (int gpu = 0; gpu < 2; gpu++) {
    Rois *s = &r.side[gpu];
    *s = (Rois){.capacity = capacity, .box = tensor_packed(F32, capacity, 4)};
    s->box.data = gpu ? r.box.gpu : r.box.cpu;
    s->image = gpu ? r.image.gpu : r.image.cpu;
    s->count = gpu ? r.count.gpu : r.count.cpu;
  }
  return r;
}

static void twin_rois_free(TwinRois *r) {
  twin_array_check_equal(&r->box, r->box.n);
  twin_array_check_equal(&r->image, r->image.n);
  twin_array_check_equal(&r->count, 1);
  twin_array_free(&r->box);
  twin_array_free(&r->image);
  twin_array_free(&r->count);
}

static Tensor magnitudes(const Tensor *t) {
  Tensor m = *t;
  m.data = xmalloc(tensor_bytes(t));
  for (size_t i = 0; i < tensor_elements(t); i++) ((float *)m.data)[i] = fabsf(((const float *)t->data)[i]);
  return m;
}

static bool same_bits(const Twin *a, const Twin *b, size_t bytes) {
  void *x = gpu_fetch(a->gpu.data, bytes), *y = gpu_fetch(b->gpu.data, bytes);
  bool same = !memcmp(x, y, bytes);
  free(x);
  free(y);
  return same;
}

// ---- forward --------------------------------------------------------------------------------------------------------

static void check_forward(Device *gpu, DType dtype, const RoiAlign *p, int channels, int capacity, int count) {
  TwinRois rois = twin_rois(capacity, count, 7);
  Twin x[ROI_LEVELS], y[2];
  Tensor sides[2][ROI_LEVELS], positive[ROI_LEVELS];
  for (int l = 0; l < ROI_LEVELS; l++) {
    x[l] = twin_random(dtype, IMAGES, heights[l], widths[l], channels, 1, (uint64_t)l + 1);
    sides[0][l] = x[l].cpu;
    sides[1][l] = x[l].gpu;
    positive[l] = magnitudes(&x[l].cpu);
  }
  for (int run = 0; run < 2; run++) {
    y[run] = twin_poisoned(dtype, capacity, p->size, p->size, channels);
    gpu->ops->roi_align_forward(gpu, p, &rois.side[1], sides[1], &y[run].gpu);
  }
  Tensor bound = y[1].cpu; // the sums of absolute values
  cpu_device()->ops->roi_align_forward(cpu_device(), p, &rois.side[0], sides[0], &y[0].cpu);
  cpu_device()->ops->roi_align_forward(cpu_device(), p, &rois.side[0], positive, &bound);
  y[0].cpu.count = rois.side[0].count;
  // Four products a sample. Adaptive sampling takes one a pixel, of which the map has no more than these inside.
  double samples = p->sampling ? p->sampling * p->sampling : heights[0] * widths[0];
  if (!twin_check(&y[0], bound.data, sum_factor(dtype, 4 * samples + 4)))
    printf("  dtype %d, size %d, sampling %d, aligned %d, %d channels, %d of %d RoIs\n", dtype, p->size, p->sampling,
           p->aligned, channels, count, capacity);
  size_t row = tensor_bytes(&y[0].gpu) / (size_t)capacity;
  EXPECT(same_bits(&y[0], &y[1], row * (size_t)count));
  y[0].cpu.count = NULL;
  for (int i = 0; i < 2; i++) {
    twin_check_guards(&y[i], false);
    twin_free(&y[i]);
  }
  for (int l = 0; l < ROI_LEVELS; l++) {
    twin_check_guards(&x[l], true);
    twin_free(&x[l]);
    free(positive[l].data);
  }
  twin_rois_free(&rois);
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

// ---- backward -------------------------------------------------------------------------------------------------------

// Each RoI gives to a pixel through at most 2 · size samples along either axis: where there are more they lie half a
// pixel apart or further.
static double backward_terms(const RoiAlign *p, int count) { return 4. * p->size * p->size * count + 8; }

static void check_backward(Device *gpu, DType dtype, const RoiAlign *p, int channels, int capacity, int count) {
  TwinRois rois = twin_rois(capacity, count, 8);
  Twin dy = twin_random(dtype, capacity, p->size, p->size, channels, 1, 9), dx[2][ROI_LEVELS];
  Tensor positive = magnitudes(&dy.cpu);
  Dest cpu[ROI_LEVELS] = {0}, bound[ROI_LEVELS] = {0};
  for (int run = 0; run < 2; run++) {
    Dest d[ROI_LEVELS] = {0};
    for (int l = 0; l < ROI_LEVELS; l++) {
      dx[run][l] = twin_poisoned(dtype, IMAGES, heights[l], widths[l], channels);
      d[l].t = dx[run][l].gpu;
      (run ? bound : cpu)[l].t = dx[run][l].cpu;
    }
    gpu->ops->roi_align_backward(gpu, p, &rois.side[1], &dy.gpu, d);
  }
  cpu_device()->ops->roi_align_backward(cpu_device(), p, &rois.side[0], &dy.cpu, cpu);
  cpu_device()->ops->roi_align_backward(cpu_device(), p, &rois.side[0], &positive, bound);
  for (int l = 0; l < ROI_LEVELS; l++) {
    if (!twin_check(&dx[0][l], bound[l].t.data, sum_factor(dtype, backward_terms(p, count))))
      printf("  level %d, dtype %d, size %d, sampling %d, aligned %d, %d channels, %d of %d RoIs\n", l, dtype, p->size,
             p->sampling, p->aligned, channels, count, capacity);
    EXPECT(same_bits(&dx[0][l], &dx[1][l], tensor_bytes(&dx[0][l].gpu)));
    for (int run = 0; run < 2; run++) {
      twin_check_guards(&dx[run][l], false);
      twin_free(&dx[run][l]);
    }
  }
  twin_check_guards(&dy, true);
  twin_free(&dy);
  free(positive.data);
  twin_rois_free(&rois);
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

// The Dest of the middle level; the others are written plainly beside it.
typedef struct DestContext {
  RoiAlign p;
  TwinRois rois;
  Twin dy, other[ROI_LEVELS];
} DestContext;

static void backward_through(Device *dev, bool gpu, void *context, const Dest *d) {
  DestContext *c = context;
  Dest dx[ROI_LEVELS] = {{.t = *twin_side(&c->other[0], gpu)}, *d, {.t = *twin_side(&c->other[2], gpu)}};
  dev->ops->roi_align_backward(dev, &c->p, &c->rois.side[gpu], twin_side(&c->dy, gpu), dx);
}

TEST(cuda_roi_align_backward_dest) {
  if (!gpu_device()) return;
  enum { CHANNELS = 11, ROIS = 30 };
  for (int d = 0; d < COUNT(dtypes); d++) {
    DestContext c = {.p = roi_pyramid(3, 2, false), .rois = twin_rois(ROIS, ROIS, 10)};
    c.dy = twin_random(dtypes[d], ROIS, 3, 3, CHANNELS, 1, 11);
    for (int l = 0; l < ROI_LEVELS; l++) c.other[l] = twin_poisoned(dtypes[d], IMAGES, heights[l], widths[l], CHANNELS);
    Twin *shape = &c.other[1];
    Tensor positive = magnitudes(&c.dy.cpu), dy = c.dy.cpu;
    c.dy.cpu = positive;
    backward_through(cpu_device(), false, &c, &(Dest){.t = shape->cpu});
    c.dy.cpu = dy;
    twin_check_dests(backward_through, &c, shape, shape->cpu.data, sum_factor(dtypes[d], backward_terms(&c.p, ROIS)),
                     12);
    free(positive.data);
    twin_check_guards(&c.dy, true);
    twin_free(&c.dy);
    for (int l = 0; l < ROI_LEVELS; l++) {
      twin_check_guards(&c.other[l], false);
      twin_free(&c.other[l]);
    }
    twin_rois_free(&c.rois);
  }
}
