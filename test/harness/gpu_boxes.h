// Scored boxes and images on both devices, for the tests of detection kernels, whose results equal the reference's bit
// for bit.
#pragma once
#include "base/rng.h"
#include "test/harness/gpu.h"

enum { GUARD_INTS = 16 }; // behind every array of an op's results; twin_array fills them with -1

static inline TwinArray twin_ints(int n, const int *values) {
  if (values) return twin_array((size_t)n, sizeof(int), values);
  return twin_array((size_t)n + GUARD_INTS, sizeof(int), NULL);
}
static inline void twin_ints_check_guards(const TwinArray *a) {
  int *got = gpu_fetch(a->gpu, a->n * a->size), whole = 0;
  for (size_t i = a->n - GUARD_INTS; i < a->n; i++) whole += got[i] == -1;
  EXPECT(whole == GUARD_INTS && "nothing is written past the end");
  free(got);
}
static inline void twin_ints_check_unchanged(const TwinArray *a) { twin_array_check_equal(a, a->n); }

typedef struct TwinBoxes {
  Boxes cpu, gpu;
  Twin box, score;
  TwinArray index, count;
} TwinBoxes;

// Rows given as groups × capacity, or all NULL: poisoned, to be written.
static inline TwinBoxes twin_boxes(int groups, int capacity, const float *box, const float *score, const int *index,
                                   const int *count) {
  int rows = groups * capacity;
  TwinBoxes t = {.box = twin_packed(rows, 4, box),
                 .score = twin_packed(rows, 1, score),
                 .index = twin_ints(rows, index),
                 .count = twin_ints(groups, count)};
  t.cpu = (Boxes){groups, capacity, t.box.cpu, t.score.cpu, t.index.cpu, t.count.cpu};
  t.gpu = (Boxes){groups, capacity, t.box.gpu, t.score.gpu, t.index.gpu, t.count.gpu};
  return t;
}
static inline void twin_boxes_free(TwinBoxes *t) {
  twin_free(&t->box);
  twin_free(&t->score);
  twin_array_free(&t->index);
  twin_array_free(&t->count);
}
static inline void twin_boxes_check_unchanged(const TwinBoxes *t) {
  twin_check_guards(&t->box, true);
  twin_check_guards(&t->score, true);
  twin_ints_check_unchanged(&t->index);
  twin_ints_check_unchanged(&t->count);
}

// Results: counts, and of the valid rows indices, scores and boxes, bit for bit. The first difference is told.
static inline void twin_boxes_check(const TwinBoxes *t, const char *what) {
  const Boxes *want = &t->cpu;
  size_t rows = (size_t)want->groups * (size_t)want->capacity;
  int *count = gpu_fetch(t->gpu.count, (size_t)want->groups * sizeof *count);
  int *index = gpu_fetch(t->gpu.index, rows * sizeof *index);
  float *box = gpu_fetch(t->gpu.box.data, rows * 4 * sizeof *box);
  float *score = gpu_fetch(t->gpu.score.data, rows * sizeof *score);
  bool equal = true;
  for (int g = 0; g < want->groups && equal; g++) {
    equal = count[g] == want->count[g];
    if (!equal) printf("  %s: group %d has %d rows, should have %d\n", what, g, count[g], want->count[g]);
    for (int i = 0; i < want->count[g] && equal; i++) {
      size_t row = (size_t)g * (size_t)want->capacity + (size_t)i;
      const float *b = box + 4 * row, *wb = (const float *)want->box.data + 4 * row;
      const float *s = score + row, *ws = (const float *)want->score.data + row;
      equal = index[row] == want->index[row] && !memcmp(s, ws, sizeof *s) && !memcmp(b, wb, 4 * sizeof *b);
      if (!equal)
        printf("  %s: group %d, row %d of %d: got index %d score %a box %a %a %a %a\n"
               "  should be                 index %d score %a box %a %a %a %a\n",
               what, g, i, want->count[g], index[row], (double)*s, (double)b[0], (double)b[1], (double)b[2],
               (double)b[3], want->index[row], (double)*ws, (double)wb[0], (double)wb[1], (double)wb[2], (double)wb[3]);
    }
  }
  EXPECT(equal);
  twin_check_guards(&t->box, false);
  twin_check_guards(&t->score, false);
  twin_ints_check_guards(&t->index);
  twin_ints_check_guards(&t->count);
  free(count);
  free(index);
  free(box);
  free(score);
}

// ---- random numbers -------------------------------------------------------------------------------------------------

typedef struct Draw {
  uint64_t key, i;
} Draw;
static inline Draw draw_begin(int seed) { return (Draw){.key = rng_key(RNG_TEST, (uint64_t)seed)}; }
static inline float draw(Draw *d, float low, float high) { return low + (high - low) * rng_uniform(d->key, d->i++); }
static inline int draw_below(Draw *d, int n) { return (int)(rng_u32(d->key, d->i++) % (uint32_t)n); }
// A box inside h × w, its sides between a pixel and a `share` of the canvas's.
static inline void draw_box(Draw *d, int h, int w, float share, float box[4]) {
  for (int k = 0; k < 2; k++) {
    float size = (float)(k ? h : w), side = draw(d, 1, share * size);
    box[k] = draw(d, 0, size - side);
    box[k + 2] = box[k] + side;
  }
}
