// Exercise 12 of docs/course/conv/12_warp_specialised.md: the stage and the parity that a warp waits for before its
// i-th tile of K: the producer at the stage's empty barrier, a consumer at its full barrier. A wait for a parity
// returns once the phase of that parity is complete; phases of a barrier have parity 0, 1, 0, … in turn, and a wait for
// parity 1 returns at once as long as the first phase is not complete.
#include "docs/course/exercises/conv.h"

PipelineWait pipeline_wait(bool producer, int stages, int i) {
  PipelineWait wait = {0, 0};
  // ---- your code ----
  // ---- end of your code ----
  return wait;
}
