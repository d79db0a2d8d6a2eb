// Catches anchors and RoIs matched or sampled differently from torchvision.
//
// Compares rpn_match and roi_sample with torchvision's Matcher and sampler written out over the full matrix of
// overlaps. At the sizes of real models the GPU samples the same anchors and RoIs as the CPU, in the same order; of the
// regression targets x and y are equal too, while w and h depend on each library's logarithm.
#include <omp.h>
#include "base/alloc.h"
#include "models/anchors.h"
#include "test/harness/detect.h"

enum { IMAGES = 4, OBJECTS = 6, BACKGROUND = -1, IGNORED = -2 };

static const int object_counts[IMAGES] = {5, 0, 3, 6}; // image 1 has none, image 2 is an empty place

static ImageInfo *truth_random(Truth *t, Fixture *f, Draw *r, int h, int w) {
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
static void naive_match(const Truth *t, int image, int n, double (*boxes)[4], double high, double low, bool low_quality,
                        int *match) {
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
static int naive_sample(const int *match, int n, bool objects, uint64_t key, int most, int *out) {
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

static void expect_encoded(const Fixture *f, const BoxCoder *coder, const double from[4], const double to[4],
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

// ---- anchors --------------------------------------------------------------------------------------------------------

static void make_anchors(Anchors *a) {
  const int h[] = {12, 6}, w[] = {16, 8};
  AnchorShapes shapes = {.sizes = 1, .size = {{8}, {16}}, .ratios = 3, .ratio = {.5f, 1, 2}};
  anchors_init(a, &shapes, 2, h, w, 48, 64);
}

static RpnTargets rpn_targets(Fixture *f, int batch) {
  return (RpnTargets){.images = IMAGES,
                      .batch = batch,
                      .index = fixture_ints(f, IMAGES * batch),
                      .positives = fixture_ints(f, IMAGES),
                      .count = fixture_ints(f, IMAGES),
                      .delta = fixture_packed(f, IMAGES * batch, 4)};
}

static void expect_rpn_image(const Fixture *f, const RpnMatch *p, const Anchors *anchors, double (*boxes)[4],
                             const Truth *truth, int n, uint64_t key, const RpnTargets *out) {
  int *match = xmalloc(anchors->total * sizeof *match), *want = xmalloc(anchors->total * sizeof *want);
  naive_match(truth, n, anchors->total, boxes, p->high, p->low, p->low_quality, match);
  int objects = naive_sample(match, anchors->total, true, key, (int)(p->batch * p->positive), want);
  int total = objects + naive_sample(match, anchors->total, false, key, p->batch - objects, want + objects);
  if (EXPECT_INT(out->positives[n], objects) && EXPECT_INT(out->count[n], total))
    for (int i = 0; i < total; i++) EXPECT_INT(out->index[n * p->batch + i], want[i]);
  for (int i = 0; i < objects; i++) {
    double object[4];
    get_box(&truth->box, n * OBJECTS + match[want[i]], object);
    expect_encoded(f, &p->coder, boxes[want[i]], object, &out->delta, n * p->batch + i);
  }
  free(match);
  free(want);
}

TEST_OP(rpn_match_random) {
  Anchors anchors;
  make_anchors(&anchors);
  double(*boxes)[4] = xmalloc(anchors.total * sizeof *boxes);
  for (int l = 0, i = 0; l < anchors.levels; l++)
    for (int pixel = 0; pixel < anchors.level[l].h * anchors.level[l].w; pixel++)
      for (int a = 0; a < 3; a++, i++)
        for (int k = 0; k < 4; k++)
          boxes[i][k] = anchors.level[l].cell[a][k] + (k % 2 ? pixel / anchors.level[l].w * anchors.level[l].stride_y
                                                             : pixel % anchors.level[l].w * anchors.level[l].stride_x);
  for (int seed = 0; seed < 8; seed++) {
    Draw r = draw_begin(60 + seed);
    Truth truth;
    ImageInfo *images = truth_random(&truth, f, &r, 48, 64);
    // Batches below, near and above what there is; with and without low-quality matches.
    RpnMatch p = {.high = .5f,
                  .low = .25f,
                  .low_quality = seed % 2 == 0,
                  .batch = 4 << 2 * (seed / 2),
                  .positive = .5f,
                  .coder = {.weight = {1, 2, 3, 4}}};
    RpnTargets out = rpn_targets(f, p.batch);
    RUN(f, rpn_match, &p, &anchors, images, &truth, &out);
    for (int n = 0; n < IMAGES; n++) {
      if (images[n].h > 0)
        expect_rpn_image(f, &p, &anchors, boxes, &truth, n, rng_key(images[n].key, RNG_RPN), &out);
      else
        EXPECT_INT(out.count[n] + out.positives[n], 0);
    }
    EXPECT_INT(out.positives[1], 0); // without ground truth all is background
    EXPECT_INT(out.count[1], MIN(p.batch, anchors.total));
    fixture_clear(f);
  }
  free(boxes);
}

TEST_OP(rpn_match_by_hand) {
  // Four anchors of 10 × 10 in a row, 10 apart, about x = 0, 10, 20, 30; objects at 13 … 23 and far away.
  Anchors anchors = {.levels = 1, .per_cell = 1, .total = 4};
  anchors.level[0] = (AnchorLevel){.h = 1, .w = 4, .stride_x = 10, .stride_y = 10, .cell = {{-5, -5, 5, 5}}};
  for (int low_quality = 0; low_quality < 2; low_quality++) {
    Truth truth = {.images = 1, .capacity = 2, .box = fixture_packed(f, 2, 4)};
    truth.label = fixture_copy(f, 2 * sizeof(int), (const int[]){1, 2});
    truth.count = fixture_copy(f, sizeof(int), &(const int){2});
    set_box(&truth.box, 0, 8, -5, 18, 5);       // IoU 7/13 with anchor 1, 3/17 with anchor 2
    set_box(&truth.box, 1, 500, 500, 510, 510); // overlapped by none, so reached by none
    ImageInfo *image = fixture_copy(f, sizeof *image, &(const ImageInfo){.h = 64, .w = 64, .rh = 64, .rw = 64});
    RpnMatch p = {.high = .6f,
                  .low = .15f,
                  .low_quality = low_quality,
                  .batch = 4,
                  .positive = .5f,
                  .coder = {.weight = {1, 1, 1, 1}}};
    RpnTargets out = {.images = 1,
                      .batch = 4,
                      .index = fixture_ints(f, 4),
                      .positives = fixture_ints(f, 1),
                      .count = fixture_ints(f, 1),
                      .delta = fixture_packed(f, 4, 4)};
    RUN(f, rpn_match, &p, &anchors, image, &truth, &out);
    // Anchors 0 and 3 are background, 2 is between the thresholds, 1 is so too unless low quality will do.
    EXPECT_INT(out.positives[0], low_quality);
    EXPECT_INT(out.count[0], 2 + low_quality);
    if (low_quality) EXPECT_INT(out.index[0], 1);
    if (low_quality) EXPECT_NEAR(get_at(&out.delta, 0), .3, FLT_EPSILON);
    EXPECT_INT(out.index[low_quality], 0);
    EXPECT_INT(out.index[low_quality + 1], 3);
    fixture_clear(f);
  }
}

TEST_OP(rpn_match_inside) {
  // Anchors of 10 × 10 pixels in a row; of an image 38 wide the first begins before it and the last ends on its border.
  Anchors anchors = {.levels = 1, .per_cell = 1, .total = 4};
  anchors.level[0] = (AnchorLevel){.h = 1, .w = 4, .stride_x = 10, .stride_y = 10, .cell = {{-1, 0, 8, 9}}};
  for (int inside = 0; inside < 2; inside++) {
    Truth truth = {.images = 1,
                   .capacity = 2,
                   .box = fixture_packed(f, 2, 4),
                   .label = fixture_copy(f, 2 * sizeof(int), (const int[]){1, 1}),
                   .count = fixture_copy(f, sizeof(int), &(const int){2})};
    set_box(&truth.box, 0, -1, 0, 8, 9);  // the first anchor itself
    set_box(&truth.box, 1, 14, 0, 23, 9); // five pixels of anchors 1 and 2 each: IoU 50 / 150 with legacy widths
    ImageInfo *image = fixture_copy(f, sizeof *image, &(const ImageInfo){.h = 64, .w = 38, .rh = 64, .rw = 38});
    RpnMatch p = {.high = .34f,
                  .low = .33f,
                  .inside = inside,
                  .batch = 4,
                  .positive = .5f,
                  .coder = {.weight = {1, 1, 1, 1}, .extra = 1}};
    RpnTargets out = {.images = 1,
                      .batch = 4,
                      .index = fixture_ints(f, 4),
                      .positives = fixture_ints(f, 1),
                      .count = fixture_ints(f, 1),
                      .delta = fixture_packed(f, 4, 4)};
    // Anchors 1 and 2 are between the thresholds; low quality makes them objects.
    RUN(f, rpn_match, &p, &anchors, image, &truth, &out);
    EXPECT_INT(out.positives[0], inside ? 0 : 1);
    EXPECT_INT(out.count[0], inside ? 0 : 2);
    if (!inside) EXPECT(out.index[0] == 0 && out.index[1] == 3);
    p.low_quality = true;
    RUN(f, rpn_match, &p, &anchors, image, &truth, &out);
    EXPECT_INT(out.positives[0], 2);
    if (inside) EXPECT(out.index[0] == 1 && out.index[1] == 2);
    fixture_clear(f);
  }
}

// ---- RoIs -----------------------------------------------------------------------------------------------------------

enum { PROPOSALS = 60 };

static Boxes proposals_random(Fixture *f, Draw *r, const Truth *truth, int h, int w) {
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

static RoiTargets roi_targets(Fixture *f, int batch, int most) {
  return (RoiTargets){.rois = fixture_rois(f, IMAGES * batch),
                      .label = fixture_ints(f, IMAGES * batch),
                      .delta = fixture_packed(f, IMAGES * batch, 4),
                      .objects = fixture_rois(f, IMAGES * most),
                      .object_label = fixture_ints(f, IMAGES * most),
                      .object_truth = fixture_ints(f, IMAGES * most)};
}

typedef struct Appended {
  int roi, object;
} Appended;

static void expect_row(const Rois *rois, int row, int image, const double want[4]) {
  EXPECT_INT(rois->image[row], image);
  for (int k = 0; k < 4; k++) EXPECT_NEAR(get_at(&rois->box, 4 * (size_t)row + k), want[k], 0);
}

static Appended expect_roi_image(const Fixture *f, const RoiSample *p, const Boxes *proposals, const Truth *truth,
                                 int n, uint64_t key, const RoiTargets *out, Appended at) {
  double boxes[PROPOSALS + OBJECTS][4];
  int match[PROPOSALS + OBJECTS], want[PROPOSALS + OBJECTS], count = proposals->count[n];
  for (int i = 0; i < count; i++) get_box(&proposals->box, n * PROPOSALS + i, boxes[i]);
  for (int g = 0; g < truth->count[n]; g++) get_box(&truth->box, n * OBJECTS + g, boxes[count++]);
  naive_match(truth, n, count, boxes, p->high, p->low, false, match);
  int objects = naive_sample(match, count, true, key, (int)(p->batch * p->positive), want);
  int total = objects + naive_sample(match, count, false, key, p->batch - objects, want + objects);
  for (int i = 0; i < total; i++, at.roi++) {
    expect_row(&out->rois, at.roi, n, boxes[want[i]]);
    if (i >= objects) {
      EXPECT_INT(out->label[at.roi], 0);
      continue;
    }
    int row = n * OBJECTS + match[want[i]];
    double object[4];
    get_box(&truth->box, row, object);
    expect_row(&out->objects, at.object, n, boxes[want[i]]);
    expect_encoded(f, &p->coder, boxes[want[i]], object, &out->delta, at.roi);
    EXPECT_INT(out->label[at.roi], truth->label[row]);
    EXPECT_INT(out->object_label[at.object], truth->label[row]);
    EXPECT_INT(out->object_truth[at.object], row);
    at.object++;
  }
  return at;
}

TEST_OP(roi_sample_random) {
  for (int seed = 0; seed < 6; seed++) {
    Draw r = draw_begin(80 + seed);
    Truth truth;
    ImageInfo *images = truth_random(&truth, f, &r, 48, 64);
    Boxes proposals = proposals_random(f, &r, &truth, 48, 64);
    // Odd seeds ignore what lies between the thresholds; batches scarce and plenty.
    RoiSample p = {.high = .5f,
                   .low = seed % 2 ? .25f : .5f,
                   .batch = 7 << seed / 2 * 2,
                   .positive = .25f,
                   .coder = {.weight = {10, 10, 5, 5}}};
    RoiTargets out = roi_targets(f, p.batch, (int)ceil(p.batch * .25));
    RUN(f, roi_sample, &p, images, &proposals, &truth, &out);
    Appended at = {0};
    for (int n = 0; n < IMAGES; n++)
      if (images[n].h > 0)
        at = expect_roi_image(f, &p, &proposals, &truth, n, rng_key(images[n].key, RNG_ROI), &out, at);
    EXPECT_INT(*out.rois.count, at.roi);
    EXPECT_INT(*out.objects.count, at.object);
    EXPECT(at.object > 0);
    fixture_clear(f);
  }
}

TEST_OP(roi_sample_of_nothing) {
  Draw r = draw_begin(90);
  Truth truth;
  ImageInfo *images = truth_random(&truth, f, &r, 48, 64);
  Boxes proposals = proposals_random(f, &r, &truth, 48, 64);
  memset(proposals.count, 0, IMAGES * sizeof(int));
  RoiSample p = {.high = .5f, .low = .5f, .batch = 16, .positive = .25f, .coder = {.weight = {1, 1, 1, 1}}};
  RoiTargets out = roi_targets(f, 16, 4);
  RUN(f, roi_sample, &p, images, &proposals, &truth, &out);
  EXPECT_INT(*out.rois.count, 4 + 0 + 0 + 4); // the ground truth alone, at most a quarter of the batch
  EXPECT_INT(*out.objects.count, 8);
  for (int i = 0; i < 4 * 8; i++) EXPECT_NEAR(get_at(&out.delta, i), 0, 0);
}

// The float 0.6 is more than 0.6, and the float 0.3 more than 0.3: in double, torchvision compares with neither.
TEST_OP(match_at_the_thresholds) {
  Anchors anchors = {.levels = 1, .per_cell = 1, .total = 2};
  anchors.level[0] = (AnchorLevel){.h = 1, .w = 2, .stride_x = 10, .stride_y = 10, .cell = {{0, 0, 10, 10}}};
  Truth truth = {.images = 1, .capacity = 2, .box = fixture_packed(f, 2, 4)};
  truth.label = fixture_copy(f, 2 * sizeof(int), (const int[]){1, 2});
  truth.count = fixture_copy(f, sizeof(int), &(const int){2});
  set_box(&truth.box, 0, 0, 0, 10, 6);  // IoU 0.6 with the first anchor: an object
  set_box(&truth.box, 1, 10, 0, 20, 3); // 0.3 with the second: between the thresholds, and not background
  ImageInfo *image = fixture_copy(f, sizeof *image, &(const ImageInfo){.h = 64, .w = 64, .rh = 64, .rw = 64});
  const BoxCoder coder = {.weight = {1, 1, 1, 1}};
  RpnMatch match = {.high = .6f, .low = .3f, .batch = 8, .positive = .5f, .coder = coder};
  RpnTargets anchor = {.images = 1,
                       .batch = 8,
                       .index = fixture_ints(f, 8),
                       .positives = fixture_ints(f, 1),
                       .count = fixture_ints(f, 1),
                       .delta = fixture_packed(f, 8, 4)};
  RUN(f, rpn_match, &match, &anchors, image, &truth, &anchor);
  EXPECT_INT(anchor.positives[0], 1);
  EXPECT_INT(anchor.count[0], 1);
  EXPECT_INT(anchor.index[0], 0);
  // The same boxes as proposals, and the two objects themselves.
  Boxes proposals = fixture_boxes(f, 1, 2);
  proposals.count[0] = 2;
  set_box(&proposals.box, 0, 0, 0, 10, 10);
  set_box(&proposals.box, 1, 10, 0, 20, 10);
  RoiSample sample = {.high = .6f, .low = .3f, .batch = 8, .positive = .5f, .coder = coder};
  RoiTargets roi = roi_targets(f, 8, 4);
  RUN(f, roi_sample, &sample, image, &proposals, &truth, &roi);
  EXPECT_INT(*roi.objects.count, 3);
  EXPECT_INT(*roi.rois.count, 3);
}

TEST_OP(match_threads) {
  Draw r = draw_begin(91);
  Anchors anchors;
  make_anchors(&anchors);
  Truth truth;
  ImageInfo *images = truth_random(&truth, f, &r, 48, 64);
  Boxes proposals = proposals_random(f, &r, &truth, 48, 64);
  RpnMatch match = {
      .high = .5f, .low = .25f, .low_quality = true, .batch = 64, .positive = .5f, .coder = {.weight = {1, 1, 1, 1}}};
  RoiSample sample = {.high = .5f, .low = .5f, .batch = 32, .positive = .25f, .coder = {.weight = {1, 1, 1, 1}}};
  RpnTargets rpn[3];
  RoiTargets roi[3];
  int before = omp_get_max_threads();
  for (int t = 0; t < 3; t++) {
    omp_set_num_threads(t + 1);
    rpn[t] = rpn_targets(f, 64);
    roi[t] = roi_targets(f, 32, 8);
    RUN(f, rpn_match, &match, &anchors, images, &truth, &rpn[t]);
    RUN(f, roi_sample, &sample, images, &proposals, &truth, &roi[t]);
    EXPECT(!memcmp(rpn[0].index, rpn[t].index, IMAGES * 64 * sizeof(int)));
    EXPECT(!memcmp(rpn[0].delta.data, rpn[t].delta.data, tensor_bytes(&rpn[0].delta)));
    EXPECT(!memcmp(roi[0].label, roi[t].label, IMAGES * 32 * sizeof(int)));
    EXPECT(!memcmp(roi[0].rois.box.data, roi[t].rois.box.data, tensor_bytes(&roi[0].rois.box)));
    EXPECT(!memcmp(roi[0].delta.data, roi[t].delta.data, tensor_bytes(&roi[0].delta)));
  }
  omp_set_num_threads(before);
}

// ---- on the GPU -----------------------------------------------------------------------------------------------------

// Whole-number boxes, some twice: equal overlaps.
static ImageInfo *truth_drawn(Truth *t, Fixture *f, Draw *d, int capacity, const int count[IMAGES], int h, int w) {
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
static void same_ints(const int *got, const int *want, int first, int n, const char *name, const char *what) {
  int i = first;
  while (i < first + n && got[i] == want[i]) i++;
  if (!EXPECT(i == first + n))
    printf("  %s: %s[%d + %d] of %d is %d, should be %d\n", what, name, first, i - first, n, got[i], want[i]);
}
// Two logarithms of up to an ulp each, and a product: four roundings of the value.
static void same_deltas(const Tensor *got_rows, const Tensor *want_rows, int first, int n, const char *what) {
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

static void check_rpn(Fixture *f, int levels, int h0, int w0, int capacity, const int count[IMAGES],
                      const RpnMatch *p) {
  char what[160];
  snprintf(what, sizeof what, "%d levels from %d x %d, up to %d objects, batch %d, low quality %d, inside %d", levels,
           h0, w0, capacity, p->batch, p->low_quality, p->inside);
  Draw d = draw_begin(h0 + capacity + p->batch);
  int h[MAX_LEVELS], w[MAX_LEVELS];
  AnchorShapes shapes = {.sizes = 1, .ratios = 3, .ratio = {.5f, 1, 2}};
  for (int l = 0; l < levels; l++) {
    h[l] = (h0 + (1 << l) - 1) >> l;
    w[l] = (w0 + (1 << l) - 1) >> l;
    shapes.size[l][0] = (float)(32 << l);
  }
  Anchors anchors;
  anchors_init(&anchors, &shapes, levels, h, w, 4 * h0, 4 * w0);
  Truth truth;
  const ImageInfo *images = truth_drawn(&truth, f, &d, capacity, count, 4 * h0, 4 * w0);
  fixture_freeze(f);
  for (int run = 0; run < 2; run++) {
    RpnTargets out = rpn_targets(f, p->batch), want = rpn_targets(f, p->batch);
    RUN(f, rpn_match, p, &anchors, images, &truth, &out);
    REFERENCE(rpn_match, p, &anchors, images, &truth, &want);
    same_ints(out.positives, want.positives, 0, IMAGES, "positives", what);
    same_ints(out.count, want.count, 0, IMAGES, "count", what);
    for (int n = 0; n < IMAGES; n++) {
      same_ints(out.index, want.index, n * p->batch, want.count[n], "index", what);
      same_deltas(&out.delta, &want.delta, n * p->batch, want.positives[n], what);
    }
  }
  fixture_clear(f);
}

static const RpnMatch torchvision_match = {
    .high = .7f, .low = .3f, .low_quality = true, .batch = 256, .positive = .5f, .coder = {.weight = {1, 1, 1, 1}}};

TEST_GPU(cuda_rpn_match) {
  const int few[] = {5, 0, 3, 1}, many[] = {300, 257, 9, 256}; // objects past a tile of the kernel's
  for (int low_quality = 0; low_quality < 2; low_quality++) {
    RpnMatch p = torchvision_match;
    p.low_quality = low_quality;
    check_rpn(f, 1, 1, 1, 8, few, &p);
    check_rpn(f, 3, 21, 33, 8, few, &p);
    check_rpn(f, 5, 50, 70, 300, many, &p);
    p.coder.extra = 1;
    p.inside = true;
    check_rpn(f, 3, 21, 33, 8, few, &p);
    check_rpn(f, 5, 50, 70, 300, many, &p);
    p = torchvision_match;
    p.low_quality = low_quality;
    p.high = .3f;
    p.low = .2f;
    p.batch = 31; // more objects than are wanted
    check_rpn(f, 3, 21, 33, 8, few, &p);
    p.batch = 4096; // more than there is background
    check_rpn(f, 2, 11, 13, 8, few, &p);
    p.positive = 0;
    check_rpn(f, 2, 11, 13, 8, few, &p);
    p.batch = 1;
    p.positive = 1;
    p.coder.weight[2] = 5;
    check_rpn(f, 2, 11, 13, 8, few, &p);
  }
}

TEST_GPU_TIER(cuda_rpn_match_full_size, 1) {
  const int count[] = {20, 0, 3, 100};
  check_rpn(f, 5, 200, 336, 100, count, &torchvision_match);
  RpnMatch all = torchvision_match;
  all.high = 0;
  all.low = 0; // every anchor is an object
  check_rpn(f, 5, 200, 336, 100, count, &all);
}

static Boxes proposals_drawn(Fixture *f, Draw *d, const Truth *truth, int capacity, bool empty) {
  Boxes b = fixture_boxes(f, IMAGES, capacity);
  for (int n = 0; n < IMAGES; n++) {
    b.count[n] = empty ? 0 : n == 0 ? capacity : below(d, capacity + 1);
    for (int i = 0; i < capacity; i++) {
      double box[4];
      draw_box(d, 200, 300, .5, box);
      if (i % 3 == 0 && truth->count[n] > 0) { // near an object
        get_box(&truth->box, n * truth->capacity + below(d, truth->count[n]), box);
        box[below(d, 4)] += uniform(d, -20, 20);
      }
      set_box(&b.box, n * capacity + i, box[0], box[1], box[2], box[3]);
      set_at(&b.score, (size_t)(n * capacity + i), 0);
      b.index[n * capacity + i] = 0;
    }
  }
  return b;
}

static void check_rois(Fixture *f, int capacity, int objects, const int count[IMAGES], const RoiSample *p, bool empty) {
  char what[160];
  snprintf(what, sizeof what, "%d proposals, up to %d objects, batch %d, positive %g, low %g%s", capacity, objects,
           p->batch, (double)p->positive, (double)p->low, empty ? ", no proposals" : "");
  Draw d = draw_begin(capacity + objects + p->batch);
  Truth truth;
  const ImageInfo *images = truth_drawn(&truth, f, &d, objects, count, 200, 300);
  Boxes proposals = proposals_drawn(f, &d, &truth, capacity, empty);
  fixture_freeze(f);
  for (int run = 0; run < 2; run++) {
    int most = MAX((int)((float)p->batch * p->positive), 1);
    RoiTargets out = roi_targets(f, p->batch, most), want = roi_targets(f, p->batch, most);
    RUN(f, roi_sample, p, images, &proposals, &truth, &out);
    REFERENCE(roi_sample, p, images, &proposals, &truth, &want);
    int rois = *want.rois.count, found = *want.objects.count;
    if (!EXPECT_INT(*out.rois.count, rois) || !EXPECT_INT(*out.objects.count, found)) continue;
    same_ints(out.rois.image, want.rois.image, 0, rois, "rois.image", what);
    same_ints(out.label, want.label, 0, rois, "label", what);
    same_ints(out.objects.image, want.objects.image, 0, found, "objects.image", what);
    same_ints(out.object_label, want.object_label, 0, found, "object_label", what);
    same_ints(out.object_truth, want.object_truth, 0, found, "object_truth", what);
    EXPECT(!memcmp(out.rois.box.data, want.rois.box.data, (size_t)rois * 4 * sizeof(float)));
    EXPECT(!memcmp(out.objects.box.data, want.objects.box.data, (size_t)found * 4 * sizeof(float)));
    for (int i = 0; i < rois; i++)
      if (want.label[i] > 0) same_deltas(&out.delta, &want.delta, i, 1, what);
  }
  fixture_clear(f);
}

TEST_GPU(cuda_roi_sample) {
  const int few[] = {5, 0, 3, 8}, many[] = {100, 7, 0, 93}, none[] = {0, 0, 0, 0};
  RoiSample p = {.high = .5f, .low = .5f, .batch = 512, .positive = .25f, .coder = {.weight = {10, 10, 5, 5}}};
  check_rois(f, 2000, 100, many, &p, false);
  check_rois(f, 2000, 100, none, &p, false);
  p.coder.extra = 1;
  check_rois(f, 2000, 100, many, &p, false);
  p.coder.extra = 0;
  check_rois(f, 60, 8, few, &p, false); // fewer than the batch
  check_rois(f, 60, 8, few, &p, true);  // the ground truth alone
  check_rois(f, 60, 8, none, &p, true);
  p.low = .25f;
  p.batch = 16; // some ignored; more objects than wanted
  check_rois(f, 300, 8, few, &p, false);
  p.positive = 0;
  check_rois(f, 300, 8, few, &p, false);
  p.positive = 1;
  p.batch = 3;
  check_rois(f, 1, 8, few, &p, false);
  p.positive = .25f;
  p.batch = 512;
  p.high = p.low = 0; // every candidate is an object
  check_rois(f, 300, 8, few, &p, false);
}
