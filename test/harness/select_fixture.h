// The definition of selecting boxes, for the tests of rpn_select, boxes_merge and detect_select: rank by counting who
// comes before.
#pragma once
#include "test/harness/op_fixture.h"

typedef struct Candidate {
  double score, box[4];
  int index;
} Candidate;

static inline bool before(const Candidate *a, const Candidate *b) {
  return a->score > b->score || (a->score == b->score && a->index < b->index);
}

// Sorts by insertion, best first.
static inline void naive_sort(Candidate *c, int n) {
  for (int i = 1; i < n; i++)
    for (int k = i; k > 0 && before(&c[k], &c[k - 1]); k--) {
      Candidate t = c[k];
      c[k] = c[k - 1];
      c[k - 1] = t;
    }
}

static inline void naive_decode(const BoxCoder *coder, const double from[4], const double delta[4],
                                const ImageInfo *info, double box[4]) {
  for (int k = 0; k < 2; k++) {
    double size = from[k + 2] - from[k], centre = from[k] + size / 2, limit = k ? info->rh : info->rw;
    double at = delta[k] / coder->weight[k] * size + centre;
    double half = exp(fmin(delta[k + 2] / coder->weight[k + 2], coder->clamp)) * size / 2;
    box[k] = fmin(fmax(at - half, 0), limit);
    box[k + 2] = fmin(fmax(at + half, 0), limit);
    if (isnan(at) || isnan(delta[k + 2])) box[k] = box[k + 2] = NAN; // fmin and fmax would lose it
  }
}

static inline void expect_group(const Fixture *f, const Boxes *out, int group, const Candidate *want, int n) {
  if (!EXPECT_INT(out->count[group], n)) return;
  for (int i = 0; i < n; i++) {
    size_t row = (size_t)group * out->capacity + i;
    EXPECT_INT(out->index[row], want[i].index);
    // Probabilities: the exponential's ulp, the sum, the division. Boxes: ten roundings on values below 512.
    EXPECT_NEAR(get_at(&out->score, row), want[i].score, 16 * epsilon(f));
    for (int k = 0; k < 4; k++) EXPECT_NEAR(get_at(&out->box, 4 * row + k), want[i].box[k], 10 * 512 * epsilon(f));
  }
}

static inline void expect_same(const Boxes *a, const Boxes *b) {
  EXPECT(!memcmp(a->index, b->index, (size_t)a->groups * a->capacity * sizeof(int)));
  EXPECT(!memcmp(a->count, b->count, (size_t)a->groups * sizeof(int)));
  EXPECT(!memcmp(a->box.data, b->box.data, tensor_bytes(&a->box)));
  EXPECT(!memcmp(a->score.data, b->score.data, tensor_bytes(&a->score)));
}
