// Catches gradients of RoIAlign that do not match it, or are not written as their Dest says.
//
// Compares with finite differences and with the definition of Dest; and the GPU, in every type, with the CPU, of which
// only the sums differ, by their rounding.
#include "test/harness/roi_align_fixture.h"

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
