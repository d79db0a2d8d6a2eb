// Exercise 14 of docs/course/conv/14_cluster.md: one block of a cluster whose blocks compute different rows of the
// result and the same columns. Each loads its own tile of A, and an equal part of B's tile for all.
#include "docs/course/exercises/conv.h"

MulticastShare multicast_share(int rank, int blocks, int b_rows, int a_bytes, int row_bytes, int consumers) {
  MulticastShare share = {0};
  // ---- your code ----
  // ---- end of your code ----
  return share;
}
