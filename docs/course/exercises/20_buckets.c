// Exercise 20 of docs/course/overlap.md: when does the last reduction end? Follow the pieces in order, close a bucket
// when it is full or the pieces end, and start its reduction when both the bucket and the queue are ready.
#include "docs/course/exercises/exercises.h"

double last_reduction_ends(int pieces, const double *ready, const double *bytes, double bucket_bytes, double latency,
                           double rate) {
  double busy_until = 0;
  // ---- your code ----
  // ---- end of your code ----
  return busy_until;
}
