// Catches boxes kept or dropped that should not be, or in another order on the GPU than on the CPU.
//
// nms against the definition: a box goes if a kept box of higher rank overlaps it too much.
#include <omp.h>
#include "test/harness/detect.h"

static void put(const Boxes *b, int group, int i, const double box[4], double score, int index) {
  int row = group * b->capacity + i;
  set_box(&b->box, row, box[0], box[1], box[2], box[3]);
  set(&b->score, (size_t)row, score);
  b->index[row] = index;
}

static const Nms half = {.threshold = .5f};

TEST(nms_by_hand) {
  for (int d = 0; d < COUNT(detect_devices); d++) {
    Fixture f = fixture_open(detect_devices[d]);
    Boxes in = fixture_boxes(&f, 1, 5), out = fixture_boxes(&f, 1, 5);
    put(&in, 0, 0, (double[]){0, 0, 10, 10}, .9, 7);
    put(&in, 0, 1, (double[]){0, 0, 10, 5}, .8, 6);  // IoU exactly 0.5 with the first: stays, the test is >
    put(&in, 0, 2, (double[]){0, 0, 10, 6}, .7, 5);  // 0.6 with the first: goes
    put(&in, 0, 3, (double[]){0, 5, 10, 11}, .6, 4); // 5/11 with the first, none with the second: stays
    put(&in, 0, 4, (double[]){0, 0, 10, 6}, .5, 3);  // dropped boxes suppress nobody, but the first does
    in.count[0] = 5;
    RUN(&f, nms, &half, &in, &out);
    EXPECT_INT(out.count[0], 3);
    const int want[] = {7, 6, 4};
    for (int i = 0; i < 3; i++) EXPECT_INT(out.index[i], want[i]);
    EXPECT_NEAR(get(&out.score, 2), .6, epsilon(&f));
    EXPECT_NEAR(get(&out.box, 4 * 2 + 3), 11, 0);
    fixture_close(&f);
  }
}

TEST(nms_nan_and_flat_boxes_suppress_nothing) {
  for (int d = 0; d < COUNT(detect_devices); d++) {
    Fixture f = fixture_open(detect_devices[d]);
    Boxes in = fixture_boxes(&f, 1, 4), out = fixture_boxes(&f, 1, 4);
    put(&in, 0, 0, (double[]){NAN, 0, 10, 10}, .9, 0);
    put(&in, 0, 1, (double[]){0, NAN, 10, NAN}, .8, 1);
    put(&in, 0, 2, (double[]){3, 3, 3, 9}, .7, 2);
    put(&in, 0, 3, (double[]){3, 3, 3, 9}, .6, 3);
    in.count[0] = 4;
    RUN(&f, nms, &half, &in, &out);
    EXPECT_INT(out.count[0], 4);
    fixture_close(&f);
  }
}

TEST(nms_identical_boxes_and_capacity) {
  Fixture f = fixture_open("cpu");
  Boxes in = fixture_boxes(&f, 3, 40), out = fixture_boxes(&f, 3, 6);
  for (int i = 0; i < 40; i++) {
    put(&in, 0, i, (double[]){1, 2, 30, 40}, .5, i);                   // all the same: one survives
    put(&in, 1, i, (double[]){20 * i, 0, 20 * i + 9, 9}, .5, 100 + i); // all apart: cut at the capacity
  }
  in.count[0] = in.count[1] = 40;
  in.count[2] = 0;
  RUN(&f, nms, &(Nms){.threshold = .7f}, &in, &out);
  EXPECT_INT(out.count[0], 1);
  EXPECT_INT(out.index[0], 0);
  EXPECT_INT(out.count[1], 6);
  EXPECT_INT(out.index[6 + 5], 105);
  EXPECT_INT(out.count[2], 0);
  EXPECT_INT(out.index[12], -1); // untouched
  fixture_close(&f);
}

// Keeps by the definition, all pairs; returns how many.
static int naive_nms(const Boxes *in, int group, double threshold, int *kept) {
  int n = 0;
  for (int i = 0; i < in->count[group]; i++) {
    bool keep = true;
    for (int k = 0; k < n; k++) {
      double a[4], b[4];
      get_box(&in->box, group * in->capacity + i, a);
      get_box(&in->box, group * in->capacity + kept[k], b);
      if (naive_iou(in->box.dtype, a, b) > threshold) keep = false;
    }
    if (keep) kept[n++] = i;
  }
  return n;
}

TEST(nms_random) {
  enum { GROUPS = 6, CAPACITY = 200 };
  for (int d = 0; d < COUNT(detect_devices); d++) {
    Fixture f = fixture_open(detect_devices[d]);
    Random r = random_begin(1);
    Boxes in = fixture_boxes(&f, GROUPS, CAPACITY), out[3];
    for (int g = 0; g < GROUPS; g++) {
      in.count[g] = below(&r, CAPACITY + 1);
      for (int i = 0; i < in.count[g]; i++) {
        double box[4];
        random_box(&r, 24, 24, 0, box); // crowded, with many equal overlaps
        put(&in, g, i, box, 1 - i / 256., below(&r, 1 << 20));
      }
    }
    for (int threads = 1; threads <= 3; threads++) {
      int before = omp_get_max_threads();
      omp_set_num_threads(threads);
      out[threads - 1] = fixture_boxes(&f, GROUPS, CAPACITY);
      RUN(&f, nms, &half, &in, &out[threads - 1]);
      omp_set_num_threads(before);
    }
    for (int t = 1; t < 3; t++) {
      EXPECT(!memcmp(out[0].index, out[t].index, GROUPS * CAPACITY * sizeof(int)));
      EXPECT(!memcmp(out[0].box.data, out[t].box.data, tensor_bytes(&out[0].box)));
      EXPECT(!memcmp(out[0].score.data, out[t].score.data, tensor_bytes(&out[0].score)));
    }
    for (int g = 0; g < GROUPS; g++) {
      int kept[CAPACITY], n = naive_nms(&in, g, .5, kept);
      if (!EXPECT_INT(out[0].count[g], n)) continue;
      for (int i = 0; i < n; i++) {
        EXPECT_INT(out[0].index[g * CAPACITY + i], in.index[g * CAPACITY + kept[i]]);
        EXPECT_NEAR(get(&out[0].score, g * CAPACITY + i), get(&in.score, g * CAPACITY + kept[i]), 0);
      }
    }
    fixture_close(&f);
  }
}

TEST(nms_legacy_widths) {
  // 0 … 9 by 0 … 9 and 0 … 5: 60 of 100 pixels are common; measured from corner to corner 45 of 81.
  for (int d = 0; d < COUNT(detect_devices); d++)
    for (int extra = 0; extra < 2; extra++) {
      Fixture f = fixture_open(detect_devices[d]);
      Boxes in = fixture_boxes(&f, 1, 2), out = fixture_boxes(&f, 1, 2);
      put(&in, 0, 0, (double[]){0, 0, 9, 9}, .9, 1);
      put(&in, 0, 1, (double[]){0, 0, 9, 5}, .8, 2);
      in.count[0] = 2;
      RUN(&f, nms, &(Nms){.threshold = .58f, .extra = (float)extra}, &in, &out);
      EXPECT_INT(out.count[0], extra ? 1 : 2);
      fixture_close(&f);
    }
}
