// Catches mask probabilities of another class than the detection's.
//
// Compares with the sigmoid of the class's logits; the GPU with the CPU, where only the exponential may differ.
#include "test/harness/mask_fixture.h"

TEST_OP(mask_select_takes_the_class) {
  enum { CLASSES = 4, SIZE = 3 };
  Draw r = draw_begin(160);
  Boxes detections = fixture_boxes(f, 3, 2);
  const int counts[] = {1, 0, 2}, classes[] = {3, 1, 2};
  memcpy(detections.count, counts, sizeof counts);
  detections.index[0] = 5 * CLASSES + classes[0]; // roi · classes + class
  detections.index[4] = 0 * CLASSES + classes[1];
  detections.index[5] = 9 * CLASSES + classes[2];
  Tensor logits = fixture_map(f, 6, SIZE, SIZE, CLASSES), probs = fixture_single(f, 6, SIZE, SIZE);
  fill_random(&r, &logits, -9, 9);
  RUN(f, mask_select, &detections, &logits, &probs);
  for (int row = 0; row < 3; row++)
    for (int k = 0; k < SIZE * SIZE; k++) {
      double logit = get_at(&logits, pixel(&logits, row, k / SIZE, k % SIZE) + classes[row]);
      EXPECT_NEAR(get_at(&probs, pixel(&probs, row, k / SIZE, k % SIZE)), 1 / (1 + exp(-logit)), 4 * epsilon(f));
    }
  EXPECT(isnan(get_at(&probs, pixel(&probs, 3, 0, 0))));
}

TEST_GPU(cuda_mask_select) {
  static const DType dtypes[] = {F32, BF16, F16};
  for (int k = 0; k < COUNT(dtypes); k++) {
    Draw d = draw_begin(23);
    Boxes b = detections_random(f);
    int size = k ? 5 : 28;
    Tensor logits = fixture_typed(f, dtypes[k], SLOTS, size, size, CLASSES);
    fill_normal(&d, &logits, 4);
    Tensor floats = fixture_floats(f, &logits);
    fixture_freeze(f);
    Tensor got = fixture_single(f, SLOTS, size, size), want = fixture_single(f, SLOTS, size, size);
    RUN(f, mask_select, &b, &logits, &got);
    REFERENCE(mask_select, &b, &floats, &want);
    for (size_t i = 0; i < (size_t)(DETECTIONS * size * size); i++) {
      double p = get_at(&want, i); // on either side exp is off by two steps at most, then a sum and a quotient
      EXPECT_NEAR(get_at(&got, i), p, 12 * (0x1p-24 * p + 1e-30));
    }
    fixture_clear(f);
  }
}
