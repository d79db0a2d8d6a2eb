// Exercise 11 of docs/course/conv/11_tma.md: a load of TMA's im2col mode. What stands in the tensor map, which counts
// for all loads, what a load says of its own, and the bytes that its barrier has to expect.
#include "docs/course/exercises/conv.h"

Im2colLoad im2col_load(const LoadConv *conv, int row, int tap, int pixels, int channels) {
  Im2colLoad load = {0};
  // ---- your code ----
  // ---- end of your code ----
  return load;
}
