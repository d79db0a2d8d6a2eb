// What the tests of the optimisers share: flat buffers of any size, in parts without shadows; and a layout of filters
// and vectors whose shadows are scaled, plain or not there.
#pragma once
#include "test/harness/op_fixture.h"

enum { LR, MOMENTUM, DECAY, LIMIT, INV_SCALE, HYPERS };
// Of the roles of parameters.
static const SgdFactors update_factors = {.rate = {1, 2, 1, .5f}, .decay = {1, 0, 2, .25f}};

static inline Tensor update_vector(Fixture *f, int n, const double *values) {
  Tensor t = fixture_packed(f, 1, n);
  for (int i = 0; i < n; i++) put(&t, 0, 0, 0, i, values[i]);
  return t;
}
static inline Tensor update_random(Fixture *f, int n, uint64_t key, double largest) {
  Tensor t = fixture_packed(f, 1, n);
  test_fill(&t, key, -largest, largest);
  return t;
}
static inline Tensor update_copy(Fixture *f, const Tensor *t) {
  Tensor copy = fixture_tensor(f, *t);
  memcpy(copy.data, t->data, tensor_bytes(t));
  return copy;
}
// By what gradients are multiplied before anything else.
static inline double update_clip(const double hyper[HYPERS], double norm) {
  return (hyper[LIMIT] > 0 ? fmin(1, hyper[LIMIT] / (norm + 1e-6)) : 1) * hyper[INV_SCALE];
}

typedef struct UpdateParts {
  UpdatePart *part;
  int count;
} UpdateParts;

// n elements, a multiple of 8, as weights in parts of `piece` elements; with `roles` of any role.
static inline UpdateParts update_plain_parts(Fixture *f, int n, int piece, bool roles) {
  UpdateParts p = {.part = fixture_alloc(f, (size_t)(n / piece + 1) * sizeof *p.part)};
  for (int at = 0; at < n; at += piece, p.count++)
    p.part[p.count] =
        (UpdatePart){.first = (size_t)at,
                     .n = MIN(piece, n - at),
                     .role = roles ? (ParamRole)(rng_u32(4, (uint64_t)p.count) % PARAM_ROLES) : PARAM_WEIGHT};
  return p;
}

typedef struct UpdateSegment { // a parameter of rows · row elements
  int rows, row, piece;        // piece: elements of its parts
  bool shadow, scaled;
  ParamRole role;
} UpdateSegment;

// Rows that end within parts and with them, and rows of many parts; parameters that leave room before the next.
static const UpdateSegment update_segments[] = {
    {70, 3 * 3 * 16, UPDATE_PART, true, true, PARAM_WEIGHT}, // three parts; rows cross from one to the next
    {1, 72, UPDATE_PART, false, false, PARAM_BIAS},
    {5, UPDATE_PART + 8, UPDATE_PART, true, false, PARAM_WEIGHT},
    {3, 8, UPDATE_PART, true, true, PARAM_WEIGHT},
    {1, 8, UPDATE_PART, false, false, PARAM_NORM_SHIFT},
    {2, UPDATE_PART, UPDATE_PART, true, true, PARAM_WEIGHT},
    {40, 8, 24, true, true, PARAM_WEIGHT},
    {1, 1000, UPDATE_PART, true, false, PARAM_NORM_SCALE},
    {3, 1032, UPDATE_PART - 8, true, true, PARAM_BIAS},
};
enum { UPDATE_SEGMENTS = sizeof update_segments / sizeof *update_segments, UPDATE_CASE_PARTS = 64 };

static inline int update_segment_span(int s) {
  return (update_segments[s].rows * update_segments[s].row + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
}
static inline int update_segment_first(int s) {
  return s ? update_segment_first(s - 1) + update_segment_span(s - 1) : 0;
}
static inline int update_segment_scale(int s) { // of its first row
  return s ? update_segment_scale(s - 1) + update_segments[s - 1].rows : 0;
}

static inline int update_segments_size(void) { return update_segment_first(UPDATE_SEGMENTS); }

// The segments' shadows, of f->type: 7 until they are written.
typedef struct UpdateShadows {
  UpdateParts parts;
  Tensor shadow, scale, scale_before;
} UpdateShadows;
static inline UpdateShadows update_shadows(Fixture *f) {
  UpdateShadows s = {.scale = update_random(f, update_segment_scale(UPDATE_SEGMENTS), 5, 1)};
  s.shadow = fixture_tensor(f, tensor_packed(f->type, 1, update_segments_size()));
  test_fill(&s.shadow, 0, 7, 7);
  s.scale_before = update_copy(f, &s.scale);
  s.parts.part = fixture_alloc(f, UPDATE_CASE_PARTS * sizeof *s.parts.part);
  for (int k = 0; k < UPDATE_SEGMENTS; k++) {
    const UpdateSegment *u = &update_segments[k];
    for (int at = 0, n = u->rows * u->row; at < n; at += u->piece) {
      CHECK(s.parts.count < UPDATE_CASE_PARTS);
      UpdatePart *p = &s.parts.part[s.parts.count++];
      *p = (UpdatePart){.first = (size_t)(update_segment_first(k) + at),
                        .n = MIN(u->piece, n - at),
                        .role = u->role,
                        .row = u->row,
                        .at = at};
      if (u->shadow) p->shadow = (char *)s.shadow.data + p->first * dtype_size(f->type);
      if (u->scaled) p->scale = (char *)s.scale.data + (size_t)update_segment_scale(k) * dtype_size(f->dev->real);
    }
  }
  return s;
}
// They are those of the weights w, to the bit: times the scale of the row, rounded; what no part covers is left alone.
static inline void update_expect_shadows(Fixture *f, const UpdateShadows *s, const Tensor *w) {
  Tensor want = fixture_tensor(f, s->shadow);
  test_fill(&want, 0, 7, 7);
  for (int k = 0; k < UPDATE_SEGMENTS; k++) {
    const UpdateSegment *u = &update_segments[k];
    for (int i = 0; u->shadow && i < u->rows * u->row; i++) {
      const int at = update_segment_first(k) + i;
      const double factor = u->scaled ? get(&s->scale, 0, 0, 0, update_segment_scale(k) + i / u->row) : 1;
      put(&want, 0, 0, 0, at, factor * get(w, 0, 0, 0, at));
    }
  }
  EXPECT(same_bits(&s->shadow, &want));
  EXPECT(same_bits(&s->scale, &s->scale_before));
}
// Elements between the segments are left alone.
static inline void update_expect_gaps(const Tensor *t, const Tensor *before) {
  for (int k = 0; k < UPDATE_SEGMENTS; k++)
    for (int i = update_segments[k].rows * update_segments[k].row; i < update_segment_span(k); i++) {
      const int at = update_segment_first(k) + i;
      EXPECT(get(t, 0, 0, 0, at) == get(before, 0, 0, 0, at));
    }
}

// What an update only reads.
typedef struct UpdateInputs {
  Tensor t[3], before[3];
  const UpdatePart *part;
  void *part_before;
  size_t part_bytes;
} UpdateInputs;
static inline UpdateInputs update_inputs(Fixture *f, const Tensor *g, const Tensor *hyper, const Tensor *stats,
                                         const UpdatePart *part, int parts) {
  UpdateInputs in = {.t = {*g, *hyper, *stats}, .part = part, .part_bytes = (size_t)parts * sizeof *part};
  for (int i = 0; i < COUNT(in.t); i++) in.before[i] = update_copy(f, &in.t[i]);
  in.part_before = fixture_copy(f, in.part_bytes, part);
  return in;
}
static inline void update_expect_inputs(const UpdateInputs *in) {
  for (int i = 0; i < COUNT(in->t); i++) EXPECT(same_bits(&in->t[i], &in->before[i]));
  EXPECT(!memcmp(in->part, in->part_before, in->part_bytes));
}
