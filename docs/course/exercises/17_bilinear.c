// Exercise 17 of docs/course/roi_align.md: one sample. The four pixels around (y, x) are weighed by how near they are:
// on each axis the lower one by 1 - f, the higher one by f, f being what is left of the coordinate past the lower one.
// Where there is no higher pixel, the edge is repeated.
#include "docs/course/exercises/exercises.h"

float bilinear_sample(const float *map, int h, int w, float y, float x) {
  float sample = 0;
  // ---- your code ----
  // ---- end of your code ----
  return sample;
}
