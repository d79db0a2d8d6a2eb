// Parts of flat buffers for the tests of the optimisers' updates: without shadows, of any size; and a layout of filters
// and vectors whose shadows are scaled, plain or not there.
#pragma once
#include "base/rng.h"
#include "nn/device.h"
#include "nn/ops.h"

// n elements, a multiple of 8, as weights in parts of `piece` elements; with `kinds` of any kind. `to` has room for
// n / piece + 1. Returns how many they are.
static inline int update_plain_parts(UpdatePart *to, int n, int piece, bool roles) {
  int parts = 0;
  for (int at = 0; at < n; at += piece, parts++)
    to[parts] = (UpdatePart){.first = (size_t)at,
                             .n = MIN(piece, n - at),
                             .role = roles ? (ParamRole)(rng_u32(4, (uint64_t)parts) % PARAM_ROLES) : PARAM_WEIGHT};
  return parts;
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

// Their parts. Shadows lie as the weights do, elements of shadow_size bytes. scale: [update_segment_scale(SEGMENTS)].
static inline int update_case_parts(UpdatePart to[UPDATE_CASE_PARTS], void *shadow, size_t shadow_size,
                                    const void *scale, size_t real_size) {
  int parts = 0;
  for (int s = 0; s < UPDATE_SEGMENTS; s++) {
    const UpdateSegment *u = &update_segments[s];
    for (int at = 0, n = u->rows * u->row; at < n; at += u->piece) {
      CHECK(parts < UPDATE_CASE_PARTS);
      UpdatePart *p = &to[parts++];
      *p = (UpdatePart){.first = (size_t)(update_segment_first(s) + at),
                        .n = MIN(u->piece, n - at),
                        .role = u->role,
                        .row = u->row,
                        .at = at};
      if (u->shadow) p->shadow = (char *)shadow + p->first * shadow_size;
      if (u->scaled) p->scale = (const char *)scale + (size_t)update_segment_scale(s) * real_size;
    }
  }
  return parts;
}
