// Catches overlaps at a threshold matched differently from torchvision, and targets that depend on the thread count.
#include <omp.h>
#include "test/harness/match_fixture.h"

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
