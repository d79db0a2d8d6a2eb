// Catches masks predicted in one pass that differ from those of the separate ops.
//
// mask_predict against the ops that it stands for. Operands are small whole numbers, weights of classes and their bias
// such over 64: all sums are exact in either order, and probabilities equal.
#include "test/harness/detect.h"

static void fill_whole(Random *r, const Tensor *t, double unit) {
  for (size_t i = 0; i < tensor_elements(t); i++)
    set(t, i, i % (size_t)t->ldc < (size_t)t->c ? (below(r, 5) - 2) * unit : 0);
}

static Tensor single(Fixture *f, int n, int h, int w) {
  Tensor t = tensor_packed(f->dev->real, n, 1);
  t.h = h;
  t.w = w;
  return fixture_tensor(f, t);
}

TEST(mask_predict_is_its_parts) {
  enum { GROUPS = 3, CAPACITY = 2, ROWS = 4, H = 3, W = 5, C = 20, HIDDEN = 41, CLASSES = 7 };
  static const int counts[GROUPS] = {1, 0, 2};
  for (int d = 0; d < COUNT(detect_devices); d++) {
    Fixture f = fixture_open(detect_devices[d]);
    Random r = random_begin(161);
    Boxes detections = fixture_boxes(&f, GROUPS, CAPACITY);
    memcpy(detections.count, counts, sizeof counts);
    for (int i = 0; i < GROUPS * CAPACITY; i++) detections.index[i] = CLASSES * below(&r, 100) + 1 + i;
    Tensor x = fixture_map(&f, ROWS, H, W, C), hidden = fixture_map(&f, ROWS, 2 * H, 2 * W, HIDDEN),
           logits = fixture_map(&f, ROWS, 2 * H, 2 * W, CLASSES), expected = single(&f, ROWS, 2 * H, 2 * W),
           probs = single(&f, ROWS, 2 * H, 2 * W), bias = fixture_packed(&f, 1, HIDDEN),
           class_bias = fixture_packed(&f, 1, CLASSES);
    MaskPredictor p = {.filter = fixture_map(&f, C, 2, 2, HIDDEN),
                       .classes = fixture_map(&f, CLASSES, 1, 1, HIDDEN),
                       .bias = bias.data,
                       .class_bias = class_bias.data};
    fill_whole(&r, &x, 1);
    fill_whole(&r, &p.filter, 1);
    fill_whole(&r, &bias, 1);
    fill_whole(&r, &p.classes, 1. / 64);
    fill_whole(&r, &class_bias, 1. / 64);
    RUN(&f, mask_predict, &detections, &x, &p, &probs);
    const Conv up = {.stride = 2}, one = {.stride = 1};
    const Dest to_hidden = {.t = hidden, .bias = p.bias, .relu = true}, to_logits = {.t = logits, .bias = p.class_bias};
    RUN(&f, conv_dgrad, &up, 1, &x, &p.filter, &to_hidden);
    RUN(&f, conv_forward, &one, 1, &hidden, &p.classes, &to_logits);
    RUN(&f, mask_select, &detections, &logits, &expected);
    const size_t valid = (size_t)3 * 2 * H * 2 * W;
    int between = 0;
    for (size_t i = 0; i < valid; i++) {
      EXPECT(get(&probs, i) == get(&expected, i));
      between += get(&probs, i) > 0.01 && get(&probs, i) < 0.99;
    }
    EXPECT(between > (int)valid / 4);
    EXPECT(isnan(get(&probs, valid)));
    fixture_close(&f);
  }
}
