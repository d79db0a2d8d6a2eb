// Catches RoIAlign that reads the wrong pixels or level.
//
// Compares with the definition; and the GPU, in every type, with the CPU. Both take levels, positions and weights from
// exact/roi_bins.h, bit for bit, so that only the sums of weighted features differ, by their rounding. Also tests
// both directions without RoIs and with one to three threads.
#include <omp.h>
#include "test/harness/roi_align_fixture.h"

// The level by the formula of the paper, as torchvision's LevelMapper has it.
static int naive_level(const RoiAlign *p, const double box[4]) {
  double side = sqrt((box[2] - box[0]) * (box[3] - box[1]));
  int level = (int)floor(p->canonical_level + log2(side / p->canonical_size) + p->level_eps) - p->first_level;
  return MIN(MAX(level, 0), p->levels - 1);
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
