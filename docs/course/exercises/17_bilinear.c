// Exercise 17 of docs/course/roi_align.md: one sample. The four pixels around (y, x) are weighted by distance: on each
// axis the lower one by 1 - f, the higher one by f, where f is the distance of the coordinate from the lower one. If
// there is no higher pixel, the edge is repeated.
#include "docs/course/exercises/exercises.h"

float bilinear_sample(const float *map, int h, int w, float y, float x) {
  float sample = 0;
  // ---- your code ----
  // ---- end of your code ----
  return sample;
}
