// Exercise 11 of docs/course/conv/11_tma.md: a load of TMA's im2col mode. What the tensor map contains, which is the
// same for all loads, what each load specifies, and how many bytes its barrier expects.
#include "docs/course/exercises/conv.h"

Im2colLoad im2col_load(const LoadConv *conv, int row, int tap, int pixels, int channels) {
  Im2colLoad load = {0};
  // ---- your code ----
  // ---- end of your code ----
  return load;
}
