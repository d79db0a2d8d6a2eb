// What the tests of rpn_match and roi_sample share: ground truth; torchvision's Matcher and sampler, written out over
// the full matrix of overlaps; and how a GPU's targets compare with the CPU's.
#pragma once
#include "base/alloc.h"
#include "models/anchors.h"
#include "test/harness/detect.h"

enum { IMAGES = 4, OBJECTS = 6, BACKGROUND = -1, IGNORED = -2 };

static const int object_counts[IMAGES] = {5, 0, 3, 6}; // image 1 has none, image 2 is an empty place

static inline ImageInfo *truth_random(Truth *t, Fixture *f, Draw *r, int h, int w) {
  ImageInfo *images = fixture_alloc(f, IMAGES * sizeof *images);
  int *label = fixture_ints(f, IMAGES * OBJECTS), *count = fixture_ints(f, IMAGES);
  *t = (Truth){.images = IMAGES, .capacity = OBJECTS, .label = label, .count = count};
  t->box = fixture_packed(f, IMAGES * OBJECTS, 4);
  for (int n = 0; n < IMAGES; n++) {
    images[n] = n == 2 ? (ImageInfo){0} : (ImageInfo){.h = h, .w = w, .rh = h, .rw = w, .key = rng_key(5, n)};
    count[n] = object_counts[n];
    for (int g = 0; g < count[n]; g++) {
      double box[4];
      random_box(r, h, w, 0, box);
      if (g == 4) get_box(&t->box, n * OBJECTS + 1, box); // an equal box: the first one wins
      set_box(&t->box, n * OBJECTS + g, box[0], box[1], box[2], box[3]);
      label[n * OBJECTS + g] = 1 + below(r, 90);
    }
  }
  return images;
}

// torchvision's Matcher: match[i] = ground truth, BACKGROUND or IGNORED. boxes [n][4].
static inline void naive_match(const Truth *t, int image, int n, double (*boxes)[4], double high, double low,
                               bool low_quality, int *match) {
  double truth[OBJECTS][4], best_of_truth[OBJECTS] = {0};
  int objects = t->count[image], *argmax = xmalloc(n * sizeof *argmax);
  for (int g = 0; g < objects; g++) get_box(&t->box, image * OBJECTS + g, truth[g]);
  for (int i = 0; i < n; i++) {
    double best = -1;
    argmax[i] = BACKGROUND;
    for (int g = 0; g < objects; g++) {
      double iou = naive_iou(t->box.dtype, boxes[i], truth[g]);
      if (iou > best) {
        best = iou;
        argmax[i] = g;
      }
      best_of_truth[g] = fmax(best_of_truth[g], iou);
    }
    match[i] = objects == 0 || best < low ? BACKGROUND : best < high ? IGNORED : argmax[i];
  }
  for (int i = 0; i < n && low_quality; i++)
    for (int g = 0; g < objects; g++)
      if (naive_iou(t->box.dtype, boxes[i], truth[g]) == best_of_truth[g]) match[i] = argmax[i];
  free(argmax);
}

// Of the candidates with match ≥ 0 (or BACKGROUND) the `most` with the smallest numbers, ascending by candidate.
static inline int naive_sample(const int *match, int n, bool objects, uint64_t key, int most, int *out) {
  int kept = 0;
  for (int i = 0; i < n; i++) {
    if (objects ? match[i] < 0 : match[i] != BACKGROUND) continue;
    int before = 0;
    for (int k = 0; k < n; k++) {
      if (objects ? match[k] < 0 : match[k] != BACKGROUND) continue;
      uint32_t a = rng_u32(key, k), b = rng_u32(key, i);
      before += a < b || (a == b && k < i);
    }
    if (before < most) out[kept++] = i;
  }
  return kept;
}

static inline void expect_encoded(const Fixture *f, const BoxCoder *coder, const double from[4], const double to[4],
                                  const Tensor *delta, int row) {
  for (int k = 0; k < 4; k++) {
    int a = k % 2;
    double size = from[a + 2] - from[a], target = to[a + 2] - to[a];
    double want = k < 2 ? (to[a] + target / 2 - from[a] - size / 2) / size : log(target / size);
    // Halves of whole numbers are exact; then a product, a quotient and a logarithm.
    double tolerance = 4 * epsilon(f) * fmax(fabs(want), 1) * coder->weight[k];
    EXPECT_NEAR(get_at(delta, 4 * (size_t)row + k), coder->weight[k] * want, tolerance);
  }
}

static inline void make_anchors(Anchors *a) {
  const int h[] = {12, 6}, w[] = {16, 8};
  AnchorShapes shapes = {.sizes = 1, .size = {{8}, {16}}, .ratios = 3, .ratio = {.5f, 1, 2}};
  anchors_init(a, &shapes, 2, h, w, 48, 64);
}

static inline RpnTargets rpn_targets(Fixture *f, int batch) {
  return (RpnTargets){.images = IMAGES,
                      .batch = batch,
                      .index = fixture_ints(f, IMAGES * batch),
                      .positives = fixture_ints(f, IMAGES),
                      .count = fixture_ints(f, IMAGES),
                      .delta = fixture_packed(f, IMAGES * batch, 4)};
}

enum { PROPOSALS = 60 };

static inline Boxes proposals_random(Fixture *f, Draw *r, const Truth *truth, int h, int w) {
  Boxes b = fixture_boxes(f, IMAGES, PROPOSALS);
  for (int n = 0; n < IMAGES; n++) {
    b.count[n] = n == 2 ? 0 : PROPOSALS - 9 * n;
    for (int i = 0; i < b.count[n]; i++) {
      double box[4];
      random_box(r, h, w, 0, box);
      if (i % 3 == 0 && truth->count[n] > 0) { // near an object
        get_box(&truth->box, n * OBJECTS + below(r, truth->count[n]), box);
        box[2] += below(r, 4);
        box[3] += below(r, 4);
      }
      set_box(&b.box, n * PROPOSALS + i, box[0], box[1], box[2], box[3]);
    }
  }
  return b;
}

static inline RoiTargets roi_targets(Fixture *f, int batch, int most) {
  return (RoiTargets){.rois = fixture_rois(f, IMAGES * batch),
                      .label = fixture_ints(f, IMAGES * batch),
                      .delta = fixture_packed(f, IMAGES * batch, 4),
                      .objects = fixture_rois(f, IMAGES * most),
                      .object_label = fixture_ints(f, IMAGES * most),
                      .object_truth = fixture_ints(f, IMAGES * most)};
}

// Whole-number boxes, some twice: equal overlaps.
static inline ImageInfo *truth_drawn(Truth *t, Fixture *f, Draw *d, int capacity, const int count[IMAGES], int h,
                                     int w) {
  int rows = IMAGES * capacity, *label = fixture_ints(f, rows);
  *t = (Truth){.images = IMAGES,
               .capacity = capacity,
               .box = fixture_packed(f, rows, 4),
               .label = label,
               .count = fixture_copy(f, IMAGES * sizeof *count, count)};
  for (int i = 0; i < rows; i++) {
    double box[4];
    label[i] = 1 + below(d, 90);
    draw_box(d, h, w, i % 5 ? .3 : 1, box);
    for (int k = 0; k < 4; k++) box[k] = k < 2 ? floor(box[k]) : ceil(box[k]);
    if (i % 7 == 6) get_box(&t->box, i - 1, box);
    if (i % 50 == 20) box[3] = NAN; // overlaps nothing
    if (i % capacity >= count[i / capacity]) box[0] = NAN;
    set_box(&t->box, i, box[0], box[1], box[2], box[3]);
  }
  ImageInfo *images = fixture_alloc(f, IMAGES * sizeof *images);
  for (int n = 0; n < IMAGES; n++)
    images[n] =
        n == 2 ? (ImageInfo){0} : (ImageInfo){.h = h, .w = w, .rh = h, .rw = w, .key = rng_key(d->key, (uint64_t)n)};
  return images;
}

// Compares n elements from `first`; reports the first difference.
static inline void same_ints(const int *got, const int *want, int first, int n, const char *name, const char *what) {
  int i = first;
  while (i < first + n && got[i] == want[i]) i++;
  if (!EXPECT(i == first + n))
    printf("  %s: %s[%d + %d] of %d is %d, should be %d\n", what, name, first, i - first, n, got[i], want[i]);
}
// Two logarithms of up to an ulp each, and a product: four roundings of the value.
static inline void same_deltas(const Tensor *got_rows, const Tensor *want_rows, int first, int n, const char *what) {
  const float *got = got_rows->data, *want = want_rows->data;
  int wrong = 0, at = 0;
  for (int i = 4 * first; i < 4 * (first + n); i++) {
    bool alike = i % 4 < 2
                     ? !memcmp(&got[i], &want[i], sizeof *got) || (isnan(got[i]) && isnan(want[i]))
                     : fabsf(got[i] - want[i]) <= 4 * FLT_EPSILON * fabsf(want[i]) || (isnan(got[i]) && isnan(want[i]));
    if (!alike && !wrong++) at = i;
  }
  if (!EXPECT(wrong == 0))
    printf("  %s: %d deltas differ; the first is row %d, number %d: %a, should be %a\n", what, wrong, at / 4, at % 4,
           (double)got[at], (double)want[at]);
}
