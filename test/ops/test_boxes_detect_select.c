// Catches detections that are wrong, lost, or in another order on the GPU than on the CPU.
//
// Compares with the definition; and at the sizes of real models the GPU's boxes, scores and indices with the CPU's, bit
// for bit. (Sixteen-bit logits are rounded on both sides alike, so this holds for every type.)
#include <omp.h>
#include "test/harness/select_fixture.h"

enum { IMAGES = 3 };

typedef struct Head {
  ImageInfo *images; // [IMAGES]
  Rois rois;
  Tensor logits, deltas;
  Detect p;
} Head;

static void head_random(Head *h, Fixture *f, int seed, int classes, int count) {
  Draw r = draw_begin(seed);
  h->images = fixture_alloc(f, IMAGES * sizeof *h->images);
  h->images[0] = (ImageInfo){.h = 60, .w = 70, .rh = 120, .rw = 140};
  h->images[1] = (ImageInfo){0};
  h->images[2] = (ImageInfo){.h = 50, .w = 50, .rh = 100, .rw = 90};
  h->p = (Detect){.coder = {.weight = {10, 10, 5, 5}, .clamp = 4.135f}, .min_score = .05f, .min_size = 3};
  h->rois = fixture_rois(f, count + 5);
  h->logits = fixture_map(f, count + 5, 1, 1, classes);
  h->deltas = fixture_map(f, count + 5, 1, 1, 4 * classes);
  *h->rois.count = count;
  for (int i = 0; i < count; i++) {
    double box[4];
    random_box(&r, 100, 90, 0, box);
    set_box(&h->rois.box, i, box[0], box[1], box[2], box[3]);
    h->rois.image[i] = i < count / 2 ? 0 : 2; // none in the empty place
    // Equal rows in runs of three: equal probabilities, to be ordered by RoI.
    for (int c = 0; c < classes; c++) {
      size_t at = pixel(&h->logits, i, 0, 0) + c;
      set_at(&h->logits, at, i % 3 ? get_at(&h->logits, at - h->logits.ldc) : uniform(&r, -3, 3));
      if (i % 3 == 0 && below(&r, 60) == 0) set_at(&h->logits, at, NAN);
    }
    for (int k = 0; k < 4 * classes; k++)
      set_at(&h->deltas, pixel(&h->deltas, i, 0, 0) + k, below(&r, 100) ? uniform(&r, -8, 4) : NAN);
  }
}

static int naive_detect(const Head *h, int n, int class, int capacity, Candidate *out) {
  int classes = h->logits.c, kept = 0;
  for (int i = 0; i < *h->rois.count; i++) {
    if (h->rois.image[i] != n) continue;
    double sum = 0, delta[4], from[4];
    for (int c = 0; c < classes; c++) sum += exp(get_at(&h->logits, pixel(&h->logits, i, 0, 0) + c));
    for (int k = 0; k < 4; k++) delta[k] = get_at(&h->deltas, pixel(&h->deltas, i, 0, 0) + 4 * class + k);
    get_box(&h->rois.box, i, from);
    Candidate c = {.score = exp(get_at(&h->logits, pixel(&h->logits, i, 0, 0) + class)) / sum,
                   .index = i * classes + class};
    naive_decode(&h->p.coder, from, delta, &h->images[n], c.box);
    bool large = c.box[2] - c.box[0] >= h->p.min_size && c.box[3] - c.box[1] >= h->p.min_size;
    if (c.score > h->p.min_score && large) out[kept++] = c;
  }
  naive_sort(out, kept);
  return MIN(kept, capacity);
}

TEST_OP(detect_select_random) {
  enum { ROIS = 120 };
  const int capacities[] = {ROIS, 7};
  for (int c = 0; c < COUNT(capacities); c++)
    for (int classes = 2; classes <= 7; classes += 5) {
      Head h;
      head_random(&h, f, 40 + c, classes, ROIS);
      Boxes out = fixture_boxes(f, IMAGES * (classes - 1), capacities[c]);
      RUN(f, detect_select, &h.p, h.images, IMAGES, &h.rois, &h.logits, &h.deltas, &out);
      int total = 0;
      for (int g = 0; g < out.groups; g++) {
        Candidate want[ROIS];
        int n = naive_detect(&h, g / (classes - 1), g % (classes - 1) + 1, capacities[c], want);
        expect_group(f, &out, g, want, n);
        total += n;
      }
      EXPECT(total > 10); // the test would prove nothing on an empty set
      fixture_clear(f);
    }
}

// A probability equal to the threshold is not enough, and one that is no number is none.
TEST_OP(detect_select_threshold) {
  Head h;
  head_random(&h, f, 52, 2, 3);
  h.p.min_score = .5f;
  const double logits[3] = {1, 1 + 1. / 64, NAN}; // against 1: exactly a half, a little more, NaN
  for (int i = 0; i < 3; i++) {
    h.rois.image[i] = 0;
    set_box(&h.rois.box, i, 10, 10, 50, 50);
    for (int k = 0; k < 8; k++) set_at(&h.deltas, pixel(&h.deltas, i, 0, 0) + k, 0);
    set_at(&h.logits, pixel(&h.logits, i, 0, 0), 1);
    set_at(&h.logits, pixel(&h.logits, i, 0, 0) + 1, logits[i]);
  }
  Boxes out = fixture_boxes(f, IMAGES, 3);
  RUN(f, detect_select, &h.p, h.images, IMAGES, &h.rois, &h.logits, &h.deltas, &out);
  EXPECT_INT(out.count[0], 1);
  EXPECT_INT(out.index[0], 1 * 2 + 1);
}

TEST_OP(detect_select_no_rois) {
  Head h;
  head_random(&h, f, 50, 3, 0);
  Boxes out = fixture_boxes(f, IMAGES * 2, 4);
  RUN(f, detect_select, &h.p, h.images, IMAGES, &h.rois, &h.logits, &h.deltas, &out);
  for (int g = 0; g < out.groups; g++) EXPECT_INT(out.count[g], 0);
}

TEST_OP(detect_select_threads) {
  Head h;
  head_random(&h, f, 51, 7, 90);
  Boxes out[3], merged[3];
  int before = omp_get_max_threads();
  for (int t = 0; t < 3; t++) {
    omp_set_num_threads(t + 1);
    out[t] = fixture_boxes(f, IMAGES * 6, 40);
    merged[t] = fixture_boxes(f, IMAGES, 25);
    RUN(f, detect_select, &h.p, h.images, IMAGES, &h.rois, &h.logits, &h.deltas, &out[t]);
    RUN(f, boxes_merge, 6, &out[t], &merged[t]);
    if (t) expect_same(&out[0], &out[t]);
    if (t) expect_same(&merged[0], &merged[t]);
  }
  omp_set_num_threads(before);
}

// Logits in steps, rows in runs of three alike: equal probabilities. Every class but the first is likely now and then.
static void fill_logits(Draw *d, const Tensor *t, bool wild) {
  for (int i = 0; i < t->n; i++)
    for (int c = 0; c < t->ldc; c++) {
      size_t at = pixel(t, i, 0, 0) + (size_t)c;
      double v = i % 3 ? get_at(t, at - (size_t)t->ldc) : below(d, 60) / 8. + (below(d, t->c) == 0 ? 6 : 0);
      if (wild && below(d, 300) == 0) v = (const double[]){NAN, INFINITY, -INFINITY}[below(d, 3)];
      set_at(t, at, c < t->c ? v : 0);
    }
}

static void check_detect(Fixture *f, DType dtype, int count, int classes, int capacity, float min_score, bool wild) {
  char what[128];
  snprintf(what, sizeof what, "dtype %d, %d RoIs, %d classes, best %d, score > %g", (int)dtype, count, classes,
           capacity, (double)min_score);
  Draw d = draw_begin(count + classes + capacity);
  const ImageInfo info[IMAGES] = {
      {.h = 60, .w = 70, .rh = 120, .rw = 140}, {0}, {.h = 50, .w = 50, .rh = 99, .rw = 90}};
  ImageInfo *images = fixture_copy(f, sizeof info, info);
  Rois rois = fixture_rois(f, count + 7);
  *rois.count = count;
  for (int i = 0; i < rois.capacity; i++) {
    double box[4];
    draw_box(&d, 99, 90, .9, box);
    set_box(&rois.box, i, box[0], box[1], box[2], box[3]);
    rois.image[i] = i < count / 3 ? 0 : 2;
  }
  Tensor logits = fixture_typed(f, dtype, rois.capacity, 1, 1, classes);
  Tensor deltas = fixture_typed(f, dtype, rois.capacity, 1, 1, 4 * classes);
  fill_logits(&d, &logits, wild);
  fill_normal(&d, &deltas, 3);
  Tensor float_logits = fixture_floats(f, &logits), float_deltas = fixture_floats(f, &deltas);
  fixture_freeze(f);
  Detect p = {.coder = {.weight = {10, 10, 5, 5}, .clamp = logf(1000.f / 16)}, .min_score = min_score, .min_size = 3};
  for (int run = 0; run < 3; run++) { // twice the same, then with legacy widths
    p.coder.extra = run == 2;
    Boxes out = fixture_boxes(f, IMAGES * (classes - 1), capacity),
          want = fixture_boxes(f, IMAGES * (classes - 1), capacity);
    RUN(f, detect_select, &p, images, IMAGES, &rois, &logits, &deltas, &out);
    REFERENCE(detect_select, &p, images, IMAGES, &rois, &float_logits, &float_deltas, &want);
    EXPECT(same_boxes(&out, &want, what));
  }
  fixture_clear(f);
}

TEST_GPU(cuda_detect_select) {
  for (DType dtype = 0; dtype < DTYPES; dtype++) {
    if (dtype == F64) continue;
    check_detect(f, dtype, 500, 91, 500, .02f, false);
    check_detect(f, dtype, 500, 91, 507, .02f, true);
  }
  check_detect(f, F32, 700, 3, 700, .1f, false);
  check_detect(f, F32, 700, 3, 5, .1f, false);  // the best five of many
  check_detect(f, F32, 700, 33, 300, 0, false); // nearly everything passes
  check_detect(f, F32, 1, 2, 1, .1f, false);
  check_detect(f, F32, 0, 7, 4, .1f, false);
}
