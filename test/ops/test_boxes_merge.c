// Catches boxes lost or out of order when those of several levels or classes are merged, cut to a number, or compacted.
//
// Compares with the definitions, and at the sizes of real models the GPU with the CPU, bit for bit.
#include "test/harness/select_fixture.h"

TEST_OP(boxes_merge_random) {
  enum { GROUPS = 3, PER = 4, CAPACITY = 30 };
  const int capacities[] = {1, 25, GROUPS * PER * CAPACITY};
  for (int c = 0; c < COUNT(capacities); c++) {
    Draw r = draw_begin(20 + c);
    Boxes in = fixture_boxes(f, GROUPS * PER, CAPACITY), out = fixture_boxes(f, GROUPS, capacities[c]);
    for (int g = 0; g < in.groups; g++) {
      in.count[g] = g / PER == 1 ? 0 : below(&r, CAPACITY + 1); // an image without any
      for (int i = 0, score = 64; i < in.count[g]; i++) {
        int row = g * CAPACITY + i;
        score -= below(&r, 3); // few steps: equal scores within and between groups
        set_at(&in.score, row, score / 64.);
        in.index[row] = row * 7919 % 10007; // distinct, in no order
        for (int k = 0; k < 4; k++) set_at(&in.box, 4 * row + k, row + k / 4.);
      }
    }
    RUN(f, boxes_merge, PER, &in, &out);
    for (int group = 0; group < GROUPS; group++) {
      Candidate want[PER * CAPACITY];
      int n = 0;
      for (int g = group * PER; g < (group + 1) * PER; g++)
        for (int i = 0; i < in.count[g]; i++, n++) {
          int row = g * CAPACITY + i;
          want[n] = (Candidate){.score = get_at(&in.score, row), .index = in.index[row]};
          get_box(&in.box, row, want[n].box);
        }
      naive_sort(want, n);
      expect_group(f, &out, group, want, MIN(n, capacities[c]));
    }
    fixture_clear(f);
  }
}

TEST_OP(boxes_cut_by_hand) {
  // In order: .9 .8' .5 .5' .5" .4" .3" .2" .1 (' second, " third group); equal scores by group.
  const double score[3][4] = {{.9, .5, .1}, {.8, .5}, {.5, .4, .3, .2}};
  const int count[3] = {3, 2, 4}, limits[] = {0, 1, 3, 4, 5, 8, 9, 100};
  const int want[][3] = {{0, 0, 0}, {1, 0, 0}, {2, 1, 0}, {2, 2, 0}, {2, 2, 1}, {2, 2, 4}, {3, 2, 4}, {3, 2, 4}};
  for (int i = 0; i < COUNT(limits); i++) {
    Boxes b = fixture_boxes(f, 3, 4);
    for (int g = 0; g < 3; g++) {
      b.count[g] = count[g];
      for (int k = 0; k < count[g]; k++) set_at(&b.score, (size_t)(4 * g + k), score[g][k]);
    }
    RUN(f, boxes_cut, limits[i], &b);
    for (int g = 0; g < 3; g++) EXPECT_INT(b.count[g], want[i][g]);
    fixture_clear(f);
  }
}

TEST_OP(rois_compact_keeps_order) {
  Boxes in = fixture_boxes(f, 4, 3);
  Rois out = fixture_rois(f, 12);
  const int counts[] = {2, 0, 3, 0};
  for (int i = 0; i < 12; i++) set_box(&in.box, i, i, i + .25, i + .5, i + .75);
  memcpy(in.count, counts, sizeof counts);
  RUN(f, rois_compact, &in, &out);
  const int rows[] = {0, 1, 6, 7, 8}, images[] = {0, 0, 2, 2, 2};
  EXPECT_INT(*out.count, 5);
  for (int i = 0; i < 5; i++) {
    EXPECT_INT(out.image[i], images[i]);
    for (int k = 0; k < 4; k++) EXPECT_NEAR(get_at(&out.box, 4 * i + k), rows[i] + k / 4., 0);
  }
  memset(in.count, 0, sizeof counts);
  RUN(f, rois_compact, &in, &out);
  EXPECT_INT(*out.count, 0);
}

// `steps` different scores; sorted within each group as an op would leave them, or not at all.
static Boxes scored_boxes(Fixture *f, Draw *d, int groups, int capacity, int steps, bool sorted, bool empty) {
  Boxes b = fixture_boxes(f, groups, capacity);
  int rows = groups * capacity;
  for (int i = 0; i < rows; i++) b.index[i] = i;
  for (int i = rows; i-- > 1;) { // any order
    int k = below(d, i + 1), t = b.index[i];
    b.index[i] = b.index[k];
    b.index[k] = t;
  }
  for (int g = 0; g < groups; g++) {
    b.count[g] = empty ? 0 : g % 4 == 3 ? capacity : below(d, capacity + 1);
    for (int i = 0; i < capacity; i++) {
      int row = g * capacity + i;
      int step = sorted ? steps - 1 - (int)((int64_t)i * steps / capacity) : below(d, steps);
      double box[4];
      set_at(&b.score, (size_t)row, i < b.count[g] ? (double)step / steps : NAN);
      draw_box(d, 600, 800, .5, box);
      set_box(&b.box, row, box[0], box[1], box[2], box[3]);
    }
  }
  return b;
}

static void check_merge(Fixture *f, int groups, int per, int capacity, int out_capacity, int steps, bool sorted,
                        bool empty) {
  char what[128];
  snprintf(what, sizeof what, "%d groups of %d x %d to %d, %d scores", groups, per, capacity, out_capacity, steps);
  Draw d = draw_begin(groups * per + capacity + steps);
  Boxes in = scored_boxes(f, &d, groups * per, capacity, steps, sorted, empty);
  fixture_freeze(f);
  for (int run = 0; run < 2; run++) {
    Boxes out = fixture_boxes(f, groups, out_capacity), want = fixture_boxes(f, groups, out_capacity);
    RUN(f, boxes_merge, per, &in, &out);
    REFERENCE(boxes_merge, per, &in, &want);
    EXPECT(same_boxes(&out, &want, what));
  }
  fixture_clear(f);
}

TEST_GPU(cuda_boxes_merge) {
  check_merge(f, 4, 5, 2000, 2000, 1 << 20, true, false); // proposals
  check_merge(f, 4, 90, 100, 100, 5000, true, false);     // detections
  check_merge(f, 2, 5, 2000, 2000, 7, true, false);       // mostly ties
  check_merge(f, 2, 5, 2000, 2000, 1, true, false);
  check_merge(f, 3, 4, 30, 1, 50, false, false);
  check_merge(f, 3, 7, 11, 77, 50, false, false); // all fit
  check_merge(f, 1, 1, 1, 1, 1, true, false);
  check_merge(f, 3, 5, 40, 20, 9, true, true);
  check_merge(f, 4, 8, 2000, 2000, 1 << 20, true, false); // the most that are counted rather than sorted
  check_merge(f, 2, 8, 2048, 9000, 1 << 20, false, false);
  check_merge(f, 4, 9, 1112, 4000, 1 << 20, true, false);  // 48 KB to sort, besides the kernel's own
  check_merge(f, 2, 9, 1112, 5000, 1 << 20, false, false); // more than 48 KB to sort
  check_merge(f, 2, 5, 5000, 1000, 1 << 20, false, false); // lists that do not fit into shared memory
}

// Groups sorted by score, as merging leaves them; of `steps` different scores.
static void check_cut(Fixture *f, int groups, int capacity, int steps, int limit, bool empty) {
  Draw d = draw_begin(groups + capacity + limit);
  Boxes b = scored_boxes(f, &d, groups, capacity, steps, true, empty), want = b;
  fixture_freeze(f); // all but the counts
  b.count = fixture_copy(f, (size_t)groups * sizeof *b.count, want.count);
  want.count = fixture_copy(f, (size_t)groups * sizeof *b.count, want.count);
  RUN(f, boxes_cut, limit, &b);
  REFERENCE(boxes_cut, limit, &want);
  EXPECT(!memcmp(b.count, want.count, (size_t)groups * sizeof *b.count));
  int kept = 0;
  for (int g = 0; g < groups; g++) kept += b.count[g];
  EXPECT(kept <= limit);
  fixture_clear(f);
}

TEST_GPU(cuda_boxes_cut) {
  check_cut(f, 2, 2000, 1 << 20, 2000, false);
  check_cut(f, 16, 2000, 500, 16000, false); // mostly ties
  check_cut(f, 40, 300, 1, 5000, false);     // more groups than warps or lanes; all scores equal
  check_cut(f, 3, 50, 20, 7, false);
  check_cut(f, 3, 50, 20, 0, false);
  check_cut(f, 3, 50, 20, 1000, false); // all stay
  check_cut(f, 1, 30, 30, 11, false);
  check_cut(f, 5, 30, 30, 11, true);
}

TEST_GPU(cuda_rois_compact) {
  for (int groups = 1; groups <= 40; groups += 13) {
    Draw d = draw_begin(groups);
    int capacity = groups == 1 ? 1000 : 70;
    Boxes in = scored_boxes(f, &d, groups, capacity, 50, true, groups == 27);
    fixture_freeze(f);
    Rois out = fixture_rois(f, groups * capacity), want = fixture_rois(f, groups * capacity);
    RUN(f, rois_compact, &in, &out);
    REFERENCE(rois_compact, &in, &want);
    if (EXPECT_INT(*out.count, *want.count)) {
      EXPECT(!memcmp(out.image, want.image, (size_t)*want.count * sizeof *want.image));
      EXPECT(!memcmp(out.box.data, want.box.data, (size_t)*want.count * 4 * sizeof(float)));
    }
    fixture_clear(f);
  }
}
