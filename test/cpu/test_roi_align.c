// Catches RoIAlign that reads the wrong pixels or level, and gradients that do not follow it.
//
// RoIAlign against its definition, its gradient against differences, and what a Dest asks for.
#include <omp.h>
#include "base/alloc.h"
#include "test/harness/detect.h"
#include "test/harness/roi_cases.h"

enum { IMAGES = 2, CHANNELS = 5, ROIS = 24 };

static const int heights[ROI_LEVELS] = {16, 8, 4}, widths[ROI_LEVELS] = {20, 10, 5}; // of a 64 × 80 canvas

// The level by the formula of the paper, as torchvision's LevelMapper has it.
static int naive_level(const RoiAlign *p, const double box[4]) {
  double side = sqrt((box[2] - box[0]) * (box[3] - box[1]));
  int level = (int)floor(p->canonical_level + log2(side / p->canonical_size) + p->level_eps) - p->first_level;
  return MIN(MAX(level, 0), p->levels - 1);
}

// RoIs of every size, a third of them partly outside, some thinner than a feature pixel; `count` is less than capacity.
static Rois rois_random(Fixture *f, Random *r, int count) {
  Rois rois = fixture_rois(f, ROIS);
  *rois.count = count;
  for (int i = 0; i < count; i++) {
    double x = uniform(r, -10, 75), y = uniform(r, -10, 60), octave = uniform(r, 1, 6);
    set_box(&rois.box, i, x, y, x + exp2(octave + uniform(r, -1, 1)), y + exp2(octave + uniform(r, -1, 1)));
    rois.image[i] = i * IMAGES / count;
  }
  return rois;
}

static void features_random(Fixture *f, Random *r, Tensor x[ROI_LEVELS]) {
  for (int l = 0; l < ROI_LEVELS; l++) {
    x[l] = fixture_map(f, IMAGES, heights[l], widths[l], CHANNELS);
    fill_random(r, &x[l], -1, 1);
  }
}

// Image n of a level as doubles.
static double *as_doubles(const Tensor *x, int n) {
  size_t size = (size_t)x->h * x->w * x->ldc;
  double *map = xmalloc(size * sizeof *map);
  for (size_t i = 0; i < size; i++) map[i] = get(x, n * size + i);
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

TEST(roi_align_forward_random) {
  for (int d = 0; d < COUNT(detect_devices); d++)
    for (int variant = 0; variant < 4; variant++) {
      Fixture f = fixture_open(detect_devices[d]);
      Random r = random_begin(100 + variant);
      RoiAlign p = roi_pyramid(3, variant & 1 ? 0 : 2, variant & 2);
      Tensor x[ROI_LEVELS], y = fixture_map(&f, ROIS, 3, 3, CHANNELS);
      features_random(&f, &r, x);
      Rois rois = rois_random(&f, &r, ROIS - 4);
      RUN(&f, roi_align_forward, &p, &rois, x, &y);
      // A position below 32 is off by at most 6 roundings; the map changes by at most 2 a pixel along either axis. Then
      // a mean of values below 1 out of 4 products each.
      double tolerance = (2 * 2 * 6 * 32 + 16) * epsilon(&f);
      bool seen[ROI_LEVELS] = {0};
      for (int i = 0; i < ROIS - 4; i++) {
        double box[4];
        get_box(&rois.box, i, box);
        seen[naive_level(&p, box)] = true;
        for (int py = 0; py < 3; py++)
          for (int px = 0; px < 3; px++) {
            int c = (i + py + px) % CHANNELS;
            EXPECT_NEAR(get(&y, pixel(&y, i, py, px) + c), naive_bin(&p, &rois, x, i, py, px, c), tolerance);
            for (int lane = CHANNELS; lane < y.ldc; lane++) EXPECT_NEAR(get(&y, pixel(&y, i, py, px) + lane), 0, 0);
          }
      }
      for (int l = 0; l < ROI_LEVELS; l++) EXPECT(seen[l]);
      EXPECT(isnan(get(&y, pixel(&y, ROIS - 4, 0, 0)))); // rows past the count are left alone
      fixture_close(&f);
    }
}

TEST(roi_align_by_hand) {
  Fixture f = fixture_open("cpu64");
  // One level, one channel, x = column: inside, a bin's mean is its centre.
  RoiAlign p = {.size = 2,
                .sampling = 2,
                .levels = 1,
                .first_level = 2,
                .scale = {1},
                .canonical_size = 224,
                .canonical_level = 4};
  Tensor x = fixture_map(&f, 1, 8, 8, 1), y = fixture_map(&f, 5, 2, 2, 1);
  for (int i = 0; i < 64; i++) set(&x, (size_t)i * 8, i % 8);
  Rois rois = fixture_rois(&f, 5);
  *rois.count = 5;
  for (int i = 0; i < 5; i++) rois.image[i] = 0;
  set_box(&rois.box, 0, 1, 1, 5, 5);  // bins centred at 2 and 4
  set_box(&rois.box, 1, 3, 3, 3, 3);  // as large as a pixel at least: centres 3.25, 3.75
  set_box(&rois.box, 2, -3, 0, 1, 4); // samples -2.5 (worth 0), -1.5 (0), -.5 (the edge, 0), .5
  set_box(&rois.box, 3, 6, 0, 10, 4); // samples 6.5, 7.5 (the edge, 7); 8.5, 9.5 (0)
  set_box(&rois.box, 4, 20, 20, 30, 30);
  RUN(&f, roi_align_forward, &p, &rois, &x, &y);
  const double want[5][2] = {{2, 4}, {3.25, 3.75}, {0, .25}, {6.75, 0}, {0, 0}};
  for (int i = 0; i < 5; i++)
    for (int px = 0; px < 2; px++) EXPECT_NEAR(get(&y, pixel(&y, i, 0, px)), want[i][px], 1e-14);
  p.aligned = true; // half a pixel to the left, and a RoI may be empty
  RUN(&f, roi_align_forward, &p, &rois, &x, &y);
  EXPECT_NEAR(get(&y, pixel(&y, 0, 0, 0)), 1.5, 1e-14);
  EXPECT_NEAR(get(&y, pixel(&y, 1, 0, 0)), 2.5, 1e-14);
  p.sampling = 0;
  RUN(&f, roi_align_forward, &p, &rois, &x, &y);
  EXPECT_NEAR(get(&y, pixel(&y, 1, 0, 0)), 0, 0); // no samples at all
  fixture_close(&f);
}

// A RoI with an area on the border between two levels belongs to the upper, for every border, in either precision.
TEST(roi_align_level_borders) {
  for (int d = 0; d < COUNT(detect_devices); d++) {
    Fixture f = fixture_open(detect_devices[d]);
    RoiAlign p = {.size = 1,
                  .sampling = 1,
                  .levels = 4,
                  .first_level = 2,
                  .scale = {1, 1, 1, 1},
                  .canonical_size = 224,
                  .canonical_level = 4};
    Tensor x[4], y = fixture_map(&f, 1, 1, 1, 1);
    for (int l = 0; l < 4; l++) {
      x[l] = fixture_map(&f, 1, 1, 1, 1);
      set(&x[l], 0, l);
    }
    const double sides[] = {1, 111.99, 112, 223.99, 224, 447.99, 448, 5000};
    const int levels[] = {0, 0, 1, 1, 2, 2, 3, 3};
    Rois rois = fixture_rois(&f, 1);
    *rois.count = 1;
    rois.image[0] = 0;
    for (int i = 0; i < 2 * COUNT(sides); i++) {
      double half = sides[i / 2] / 2; // centred on the only pixel
      p.level_eps = i % 2 ? 1e-6f : 0;
      set_box(&rois.box, 0, -half, -half, half, half);
      RUN(&f, roi_align_forward, &p, &rois, x, &y);
      EXPECT_NEAR(get(&y, 0), levels[i / 2], 0);
    }
    fixture_close(&f);
  }
}

// The pixel of RoIs that read level l is l. size_eps moves the border at 224 to 224 · (1 - 1e-6) = 223.99978; with
// legacy widths a RoI from 0 to 223 is 224 pixels wide.
TEST(roi_align_levels_of_conventions) {
  for (int d = 0; d < COUNT(detect_devices); d++) {
    Fixture f = fixture_open(detect_devices[d]);
    Tensor x[4], y = fixture_map(&f, 1, 1, 1, 1);
    for (int l = 0; l < 4; l++) {
      x[l] = fixture_map(&f, 1, 1, 1, 1);
      set(&x[l], 0, l);
    }
    Rois rois = fixture_rois(&f, 1);
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
      RUN(&f, roi_align_forward, &p, &rois, x, &y);
      EXPECT_NEAR(get(&y, 0), cases[i].level, 0);
    }
    fixture_close(&f);
  }
}

// ---- backward -------------------------------------------------------------------------------------------------------

static double dot(const Tensor *a, const Tensor *b, int n) {
  double sum = 0;
  for (size_t i = 0; i < (size_t)n * a->h * a->w * a->ldc; i++) sum += get(a, i) * get(b, i);
  return sum;
}

// y is linear in x, so a difference with step 1 is the derivative but for rounding: some tens of products below 1.
TEST(roi_align_backward_is_the_gradient) {
  for (int variant = 0; variant < 4; variant++) {
    Fixture f = fixture_open("cpu64");
    Random r = random_begin(110 + variant);
    RoiAlign p = roi_pyramid(3, variant & 1 ? 0 : 2, variant & 2);
    Tensor x[ROI_LEVELS], y = fixture_map(&f, ROIS, 3, 3, CHANNELS), dy = fixture_map(&f, ROIS, 3, 3, CHANNELS);
    Dest dx[ROI_LEVELS] = {0};
    features_random(&f, &r, x);
    fill_random(&r, &dy, -1, 1);
    for (int l = 0; l < ROI_LEVELS; l++) dx[l].t = fixture_map(&f, IMAGES, heights[l], widths[l], CHANNELS);
    Rois rois = rois_random(&f, &r, ROIS - 4);
    RUN(&f, roi_align_backward, &p, &rois, &dy, dx);
    for (int i = 0; i < 60; i++) {
      int l = below(&r, ROI_LEVELS);
      size_t at = pixel(&x[l], below(&r, IMAGES), below(&r, heights[l]), below(&r, widths[l])) + below(&r, CHANNELS);
      double value = get(&x[l], at), low, high;
      RUN(&f, roi_align_forward, &p, &rois, x, &y);
      low = dot(&y, &dy, ROIS - 4);
      set(&x[l], at, value + 1);
      RUN(&f, roi_align_forward, &p, &rois, x, &y);
      high = dot(&y, &dy, ROIS - 4);
      set(&x[l], at, value);
      EXPECT_NEAR(get(&dx[l].t, at), high - low, 1e-11);
    }
    // <dy, F x> = <Fᵀ dy, x> looks at every element at once.
    double inner = 0;
    for (int l = 0; l < ROI_LEVELS; l++) inner += dot(&dx[l].t, &x[l], IMAGES);
    RUN(&f, roi_align_forward, &p, &rois, x, &y);
    EXPECT_NEAR(inner, dot(&y, &dy, ROIS - 4), 1e-11);
    fixture_close(&f);
  }
}

// Every combination of accumulate, mask and addend (none, equal, half, double size) against the plain gradient.
TEST(roi_align_backward_dest) {
  for (int d = 0; d < COUNT(detect_devices); d++)
    for (int variant = 0; variant < 16; variant++) {
      Fixture f = fixture_open(detect_devices[d]);
      Random r = random_begin(120 + variant);
      RoiAlign p = roi_pyramid(3, 2, false);
      Tensor dy = fixture_map(&f, ROIS, 3, 3, CHANNELS), before[ROI_LEVELS], mask[ROI_LEVELS], addend[ROI_LEVELS];
      Dest plain[ROI_LEVELS] = {0}, dx[ROI_LEVELS] = {0};
      fill_random(&r, &dy, -1, 1);
      int kind = variant / 4;
      for (int l = 0; l < ROI_LEVELS; l++) {
        int h = heights[l], w = widths[l];
        plain[l].t = fixture_map(&f, IMAGES, h, w, CHANNELS);
        dx[l].t = fixture_map(&f, IMAGES, h, w, CHANNELS);
        before[l] = fixture_map(&f, IMAGES, h, w, CHANNELS);
        mask[l] = fixture_map(&f, IMAGES, h, w, CHANNELS);
        addend[l] = kind == 2   ? fixture_map(&f, IMAGES, (h + 1) / 2, (w + 1) / 2, CHANNELS)
                    : kind == 3 ? fixture_map(&f, IMAGES, 2 * h, 2 * w - 1, CHANNELS)
                                : fixture_map(&f, IMAGES, h, w, CHANNELS);
        fill_random(&r, &before[l], -1, 1);
        fill_random(&r, &mask[l], -1, 1);
        fill_random(&r, &addend[l], -1, 1);
        dx[l].accumulate = variant & 1;
        if (dx[l].accumulate) memcpy(dx[l].t.data, before[l].data, tensor_bytes(&before[l]));
        if (variant & 2) dx[l].mask = &mask[l];
        if (kind > 0) dx[l].addend = &addend[l];
      }
      Rois rois = rois_random(&f, &r, ROIS);
      RUN(&f, roi_align_backward, &p, &rois, &dy, plain);
      // The fixture's RUN must not be used: an accumulating op is to run once.
      f.dev->ops->roi_align_backward(f.dev, &p, &rois, &dy, dx);
      for (int l = 0; l < ROI_LEVELS; l++)
        for (int i = 0; i < IMAGES * heights[l] * widths[l]; i++)
          for (int c = 0; c < dx[l].t.ldc; c++) {
            int n = i / (heights[l] * widths[l]), y = i / widths[l] % heights[l], x = i % widths[l];
            size_t at = (size_t)i * dx[l].t.ldc + c;
            double want = get(&plain[l].t, at) + (variant & 1 ? get(&before[l], at) : 0);
            if (kind == 1) want += get(&addend[l], at);
            if (kind == 2) want += get(&addend[l], pixel(&addend[l], n, y / 2, x / 2) + c);
            for (int k = 0; k < 4 && kind == 3; k++)
              if (2 * x + k % 2 < addend[l].w)
                want += get(&addend[l], pixel(&addend[l], n, 2 * y + k / 2, 2 * x + k % 2) + c);
            if ((variant & 2) && !(get(&mask[l], at) > 0)) want = 0;
            EXPECT_NEAR(get(&dx[l].t, at), c < CHANNELS ? want : 0, 8 * epsilon(&f) * (8 + fabs(want)));
          }
      fixture_close(&f);
    }
}

TEST(roi_align_without_rois) {
  Fixture f = fixture_open("cpu");
  RoiAlign p = roi_pyramid(3, 2, false);
  Tensor x[ROI_LEVELS], y = fixture_map(&f, ROIS, 3, 3, CHANNELS), dy = fixture_map(&f, ROIS, 3, 3, CHANNELS);
  Dest dx[ROI_LEVELS] = {0};
  Random r = random_begin(140);
  features_random(&f, &r, x);
  for (int l = 0; l < ROI_LEVELS; l++) dx[l].t = fixture_map(&f, IMAGES, heights[l], widths[l], CHANNELS);
  Rois rois = fixture_rois(&f, ROIS);
  *rois.count = 0;
  RUN(&f, roi_align_forward, &p, &rois, x, &y);
  RUN(&f, roi_align_backward, &p, &rois, &dy, dx);
  EXPECT(isnan(get(&y, 0)));
  for (int l = 0; l < ROI_LEVELS; l++)
    for (size_t i = 0; i < tensor_elements(&dx[l].t); i++) EXPECT_NEAR(get(&dx[l].t, i), 0, 0);
  fixture_close(&f);
}

TEST(roi_align_threads) {
  Fixture f = fixture_open("cpu");
  RoiAlign p = roi_pyramid(4, 2, false);
  Random r = random_begin(141);
  Tensor x[ROI_LEVELS], y[3], dy = fixture_map(&f, ROIS, 4, 4, CHANNELS);
  Dest dx[3][ROI_LEVELS] = {0};
  features_random(&f, &r, x);
  fill_random(&r, &dy, -1, 1);
  Rois rois = rois_random(&f, &r, ROIS);
  int before = omp_get_max_threads();
  for (int t = 0; t < 3; t++) {
    omp_set_num_threads(t + 1);
    y[t] = fixture_map(&f, ROIS, 4, 4, CHANNELS);
    for (int l = 0; l < ROI_LEVELS; l++) dx[t][l].t = fixture_map(&f, IMAGES, heights[l], widths[l], CHANNELS);
    RUN(&f, roi_align_forward, &p, &rois, x, &y[t]);
    RUN(&f, roi_align_backward, &p, &rois, &dy, dx[t]);
    EXPECT(!memcmp(y[0].data, y[t].data, tensor_bytes(&y[0])));
    for (int l = 0; l < ROI_LEVELS; l++) EXPECT(!memcmp(dx[0][l].t.data, dx[t][l].t.data, tensor_bytes(&dx[0][l].t)));
  }
  omp_set_num_threads(before);
  fixture_close(&f);
}
