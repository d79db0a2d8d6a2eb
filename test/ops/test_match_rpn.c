// Catches anchors matched or sampled differently from torchvision.
//
// At the sizes of real models the GPU samples the same anchors as the CPU, in the same order; of the regression targets
// x and y are equal too, while w and h depend on each library's logarithm.
#include "test/harness/match_fixture.h"

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

// ---- on the GPU -----------------------------------------------------------------------------------------------------

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
