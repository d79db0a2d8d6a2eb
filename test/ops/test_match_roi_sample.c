// Catches RoIs matched or sampled differently from torchvision.
//
// At the sizes of real models the GPU samples the same RoIs as the CPU, in the same order; of the regression targets x
// and y are equal too, while w and h depend on each library's logarithm.
#include "test/harness/match_fixture.h"

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
  const int few[] = {5, 0, 3, 8}, many[] = {100, 7, 0, 93}, none[] = {0, 0, 0, 0}, crowd[] = {2000, 0, 3, 1500};
  RoiSample p = {.high = .5f, .low = .5f, .batch = 512, .positive = .25f, .coder = {.weight = {10, 10, 5, 5}}};
  check_rois(f, 2000, 100, many, &p, false);
  check_rois(f, 2000, 100, none, &p, false);
  p.coder.extra = 1;
  check_rois(f, 2000, 100, many, &p, false);
  p.coder.extra = 0;
  p.batch = MOST_ROIS;
  check_rois(f, 8400, 2000, crowd, &p, false);
  p.batch = 512;
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
