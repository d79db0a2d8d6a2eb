// Exercise 20 of docs/course/overlap.md: when is the last bucket reduced? Follow the pieces in order, close a bucket
// where it is full or the pieces end, and let its reduction begin when both it and the queue are ready.
#include "docs/course/exercises/exercises.h"

double last_reduction_ends(int pieces, const double *ready, const double *bytes, double bucket_bytes, double latency,
                           double rate) {
  double busy_until = 0;
  // ---- your code ----
  // ---- end of your code ----
  return busy_until;
}
