// Catches boxes kept or dropped that should not be, or in another order on the GPU than on the CPU.
//
// A box is dropped if a kept box of higher rank overlaps it too much. The CPU is compared with this definition, the GPU
// with the CPU.
#include <omp.h>
#include "base/record.h"
#include "exact/geometry.h"
#include "test/harness/detect.h"

static void put_box(const Boxes *b, int group, int i, const double box[4], double score, int index) {
  int row = group * b->capacity + i;
  set_box(&b->box, row, box[0], box[1], box[2], box[3]);
  set_at(&b->score, (size_t)row, score);
  b->index[row] = index;
}

static const Nms half = {.threshold = .5f};

TEST_OP(nms_by_hand) {
  Boxes in = fixture_boxes(f, 1, 5), out = fixture_boxes(f, 1, 5);
  put_box(&in, 0, 0, (double[]){0, 0, 10, 10}, .9, 7);
  put_box(&in, 0, 1, (double[]){0, 0, 10, 5}, .8, 6);  // IoU exactly 0.5 with the first: stays, the test is >
  put_box(&in, 0, 2, (double[]){0, 0, 10, 6}, .7, 5);  // 0.6 with the first: goes
  put_box(&in, 0, 3, (double[]){0, 5, 10, 11}, .6, 4); // 5/11 with the first, none with the second: stays
  put_box(&in, 0, 4, (double[]){0, 0, 10, 6}, .5, 3);  // dropped boxes suppress nobody, but the first does
  in.count[0] = 5;
  RUN(f, nms, &half, &in, &out);
  EXPECT_INT(out.count[0], 3);
  const int want[] = {7, 6, 4};
  for (int i = 0; i < 3; i++) EXPECT_INT(out.index[i], want[i]);
  EXPECT_NEAR(get_at(&out.score, 2), .6, epsilon(f));
  EXPECT_NEAR(get_at(&out.box, 4 * 2 + 3), 11, 0);
}

// The float 0.7 is less than 0.7, which is what torchvision compares a double with.
TEST_OP(nms_keeps_a_pair_at_the_threshold) {
  static const float thresholds[] = {.1f, .2f, .3f, .4f, .5f, .6f, .7f, .8f, .9f};
  for (int i = 0; i < COUNT(thresholds); i++) {
    Boxes in = fixture_boxes(f, 1, 2), out = fixture_boxes(f, 1, 2);
    put_box(&in, 0, 0, (double[]){0, 0, 10, 10}, .9, 0);
    put_box(&in, 0, 1, (double[]){0, 0, 10, i + 1}, .8, 1);
    in.count[0] = 2;
    RUN(f, nms, &(Nms){.threshold = thresholds[i]}, &in, &out);
    EXPECT_INT(out.count[0], 2);
    put_box(&in, 0, 1, (double[]){0, 0, 10, i + 1.001}, .8, 1);
    RUN(f, nms, &(Nms){.threshold = thresholds[i]}, &in, &out);
    EXPECT_INT(out.count[0], 1);
  }
}

TEST_OP(nms_nan_and_flat_boxes_suppress_nothing) {
  Boxes in = fixture_boxes(f, 1, 4), out = fixture_boxes(f, 1, 4);
  put_box(&in, 0, 0, (double[]){NAN, 0, 10, 10}, .9, 0);
  put_box(&in, 0, 1, (double[]){0, NAN, 10, NAN}, .8, 1);
  put_box(&in, 0, 2, (double[]){3, 3, 3, 9}, .7, 2);
  put_box(&in, 0, 3, (double[]){3, 3, 3, 9}, .6, 3);
  in.count[0] = 4;
  RUN(f, nms, &half, &in, &out);
  EXPECT_INT(out.count[0], 4);
}

TEST_OP(nms_identical_boxes_and_capacity) {
  Boxes in = fixture_boxes(f, 3, 40), out = fixture_boxes(f, 3, 6);
  for (int i = 0; i < 40; i++) {
    put_box(&in, 0, i, (double[]){1, 2, 30, 40}, .5, i);                   // all the same: one survives
    put_box(&in, 1, i, (double[]){20 * i, 0, 20 * i + 9, 9}, .5, 100 + i); // all apart: cut at the capacity
  }
  in.count[0] = in.count[1] = 40;
  in.count[2] = 0;
  RUN(f, nms, &(Nms){.threshold = .7f}, &in, &out);
  EXPECT_INT(out.count[0], 1);
  EXPECT_INT(out.index[0], 0);
  EXPECT_INT(out.count[1], 6);
  EXPECT_INT(out.index[6 + 5], 105);
  EXPECT_INT(out.count[2], 0);
  EXPECT_INT(out.index[12], -1); // untouched
}

TEST_OP(nms_legacy_widths) {
  // 0 … 9 by 0 … 9 and 0 … 5: 60 of 100 pixels are common; measured from corner to corner 45 of 81.
  for (int extra = 0; extra < 2; extra++) {
    Boxes in = fixture_boxes(f, 1, 2), out = fixture_boxes(f, 1, 2);
    put_box(&in, 0, 0, (double[]){0, 0, 9, 9}, .9, 1);
    put_box(&in, 0, 1, (double[]){0, 0, 9, 5}, .8, 2);
    in.count[0] = 2;
    RUN(f, nms, &(Nms){.threshold = .58f, .extra = (float)extra}, &in, &out);
    EXPECT_INT(out.count[0], extra ? 1 : 2);
  }
}

// ---- many boxes -----------------------------------------------------------------------------------------------------

// Fills one group; returns how many boxes.
typedef int FillGroup(Draw *d, int capacity, double (*box)[4]);

static int fill_crowded(Draw *d, int capacity, double (*box)[4]) {
  for (int i = 0; i < capacity; i++) draw_box(d, 300, 400, .4, box[i]);
  return capacity;
}
static int fill_some(Draw *d, int capacity, double (*box)[4]) {
  fill_crowded(d, capacity, box);
  return below(d, capacity + 1);
}
static int fill_whole(Draw *d, int capacity, double (*box)[4]) { // crowded, with many equal overlaps
  for (int i = 0; i < capacity; i++) random_box(d, 24, 24, 0, box[i]);
  return capacity;
}
static int fill_none(Draw *d, int capacity, double (*box)[4]) {
  (void)d;
  (void)capacity;
  (void)box;
  return 0;
}
static int fill_sparse(Draw *d, int capacity, double (*box)[4]) { // all survive
  for (int i = 0; i < capacity; i++) {
    draw_box(d, 8, 8, .5, box[i]);
    for (int k = 0; k < 4; k++) box[i][k] += (k % 2 ? i / 64 : i % 64) * 8;
  }
  return capacity;
}
static int fill_same(Draw *d, int capacity, double (*box)[4]) { // one survives
  (void)d;
  for (int i = 0; i < capacity; i++) memcpy(box[i], (double[]){1, 2, 30, 40}, sizeof *box);
  return capacity;
}
// Each overlaps its neighbours alone: every other survives, each known only when the one before it is.
static int fill_chain(Draw *d, int capacity, double (*box)[4]) {
  (void)d;
  for (int i = 0; i < capacity; i++) memcpy(box[i], (double[]){i, 0, i + 4, 4}, sizeof *box);
  return capacity;
}
static int fill_wild(Draw *d, int capacity, double (*box)[4]) {
  const double wild[] = {NAN, -NAN, INFINITY, -INFINITY, 0, -0., (double)FLT_MAX};
  fill_crowded(d, capacity, box);
  for (int i = 0; i < capacity; i++)
    if (below(d, 3) == 0) box[i][below(d, 4)] = wild[below(d, COUNT(wild))];
  return capacity;
}
static FillGroup *const fills[] = {fill_crowded, fill_some, fill_none,   fill_same,
                                   fill_chain,   fill_wild, fill_sparse, fill_whole};

// A box as it is measured: x2 and y2 past its last pixels.
static void get_span(const Tensor *t, int row, float extra, double span[4]) {
  get_box(t, row, span);
  for (int k = 2; k < 4; k++) span[k] = t->dtype == F64 ? span[k] + extra : (double)((float)span[k] + extra);
}

// Keeps by the definition, all pairs, what `out` has room for.
static void naive_nms(const Nms *p, const Boxes *in, const Boxes *out) {
  const double threshold = in->box.dtype == F64 ? float_decimal(p->threshold) : (double)p->threshold;
  for (int group = 0; group < in->groups; group++) {
    int n = 0;
    for (int i = 0; i < in->count[group] && n < out->capacity; i++) {
      int row = group * in->capacity + i;
      double box[4], span[4], other[4];
      get_box(&in->box, row, box);
      get_span(&in->box, row, p->extra, span);
      bool keep = true;
      for (int k = 0; k < n && keep; k++) {
        get_span(&out->box, group * out->capacity + k, p->extra, other);
        keep = !(naive_iou(in->box.dtype, span, other) > threshold);
      }
      if (keep) put_box(out, group, n++, box, get_at(&in->score, (size_t)row), in->index[row]);
    }
    out->count[group] = n;
  }
}

// The CPU is held to the definition and, for any number of threads, to the same bits; the GPU to the CPU, twice.
static void check_nms(Fixture *f, int groups, int capacity, int out_capacity, float threshold) {
  char what[128];
  snprintf(what, sizeof what, "%d groups of %d to %d, IoU > %g", groups, capacity, out_capacity, (double)threshold);
  Draw d = draw_begin(groups + capacity + out_capacity);
  Boxes in = fixture_boxes(f, groups, capacity);
  double(*box)[4] = fixture_alloc(f, (size_t)capacity * sizeof *box);
  for (int g = 0; g < groups; g++) {
    in.count[g] = fills[g % COUNT(fills)](&d, capacity, box);
    for (int i = 0; i < in.count[g]; i++) put_box(&in, g, i, box[i], 1 - (double)i / capacity, below(&d, 1 << 30));
  }
  fixture_freeze(f);
  for (int run = 0; run < 3; run++) { // first twice the same, then with legacy widths
    Nms p = {.threshold = threshold, .extra = run == 2};
    Boxes out = fixture_boxes(f, groups, out_capacity), want = fixture_boxes(f, groups, out_capacity);
    int threads = omp_get_max_threads();
    omp_set_num_threads(run + 1);
    RUN(f, nms, &p, &in, &out);
    omp_set_num_threads(threads);
    if (f->dev->gpu)
      REFERENCE(nms, &p, &in, &want);
    else
      naive_nms(&p, &in, &want);
    EXPECT(same_boxes(&out, &want, what));
  }
  fixture_clear(f);
}

TEST_OP(nms_keeps_by_the_definition) {
  const int capacities[] = {1, 2, 31, 63, 64, 65, 127, 128, 129, 500};
  for (int i = 0; i < COUNT(capacities); i++) check_nms(f, 8, capacities[i], capacities[i], .5f);
  check_nms(f, 8, 300, 1, .5f); // cut at the capacity: within the first tile, at its end, behind it
  check_nms(f, 8, 300, 64, .7f);
  check_nms(f, 8, 300, 100, .7f);
  check_nms(f, 8, 200, 200, 0);     // any overlap at all
  check_nms(f, 8, 200, 200, 1);     // none is enough
  check_nms(f, 360, 40, 30, .5f);   // as many groups as classes of four images
  check_nms(f, 16, 1000, 100, .5f); // few of many: compared with survivors alone
  check_nms(f, 16, 777, 194, .1f);
  check_nms(f, 8, 260, 65, 1);
  check_nms(f, 8, 4, 1, .5f);
}

TEST_GPU_TIER(cuda_nms_full_size, 1) {
  check_nms(f, 20, 2000, 2000, .7f);
  check_nms(f, 20, 2000, 1000, .7f);
  check_nms(f, 8, 5000, 1024, .9f);
  check_nms(f, 8, 10000, 9000, .5f); // a bitmask whose rows do not fit into shared memory
}

// The kernel looks at a pair from either side.
TEST(iou_is_symmetric) {
  Draw d = draw_begin(1);
  double box[2][4];
  for (int i = 0; i < 20000; i++) {
    if (i % 2)
      fill_wild(&d, 2, box);
    else
      fill_crowded(&d, 2, box);
    Box a = {(real)box[0][0], (real)box[0][1], (real)box[0][2], (real)box[0][3]};
    Box b = {(real)box[1][0], (real)box[1][1], (real)box[1][2], (real)box[1][3]};
    real ab = box_iou(a, b), ba = box_iou(b, a);
    if (!EXPECT(!memcmp(&ab, &ba, sizeof ab))) break;
  }
}
