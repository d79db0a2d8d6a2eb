// Exercise 1 of docs/course/conv/01_naive.md: the im2col matrix that nobody writes down. Take row apart into image, row
// and column of y, and k into tap and channel; then say which pixel of x that tap reads.
#include "docs/course/exercises/conv.h"

long im2col_index(const ConvShape *conv, int row, int k) {
  long at = -1;
  // ---- your code ----
  // ---- end of your code ----
  return at;
}
