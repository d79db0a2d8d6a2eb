// Exercise 1 of docs/course/conv/01_naive.md: the im2col matrix, which is never stored. Split row into image, row and
// column of y, and k into tap and channel; then find the pixel of x that this tap reads.
#include "docs/course/exercises/conv.h"

long im2col_index(const ConvShape *conv, int row, int k) {
  long at = -1;
  // ---- your code ----
  // ---- end of your code ----
  return at;
}
