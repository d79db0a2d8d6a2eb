// Exercise 12 of docs/course/conv/12_warp_specialised.md: which stage, and which parity, an actor waits for with its
// i-th tile of K: the producer at the stage's empty barrier, a consumer at its full one. A wait for a parity returns
// once the phase of that parity is complete; phases of a barrier have parity 0, 1, 0, … in turn, and a wait for parity
// 1 returns at once as long as the first phase is not complete.
#include "docs/course/exercises/conv.h"

PipelineWait pipeline_wait(bool producer, int stages, int i) {
  PipelineWait wait = {0, 0};
  // ---- your code ----
  // ---- end of your code ----
  return wait;
}
