// Exercise 5 of docs/course/conv/05_cp_async.md: the main loop of a pipeline. Start the first copies, each in its own
// group; then for every tile wait for its group, synchronise at the barrier, start the copy that is furthest ahead, and
// multiply. A stage may be overwritten once all threads have read it, which only a barrier ensures. Keep the number of
// groups right until the end.
#include "docs/course/exercises/conv.h"

void pipeline(int tiles, int stages) {
  // ---- your code ----
  // ---- end of your code ----
}
