// Exercise 5 of docs/course/conv/05_cp_async.md: the main loop of a pipeline. Start the first copies, a group each;
// then for every tile wait for its group, meet at the barrier, start the copy that goes furthest ahead, multiply. A
// stage may be overwritten when all threads have read it, which only a barrier tells. Keep the count of groups right to
// the end.
#include "docs/course/exercises/conv.h"

void pipeline(int tiles, int stages) {
  // ---- your code ----
  // ---- end of your code ----
}
