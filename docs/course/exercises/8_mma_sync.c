// Exercise 8 of docs/course/conv/08_mma_sync.md: the layout of mma.sync's operands, the other way round. The chapter
// says what a lane's registers hold; here an element asks for its lane and register.
#include "docs/course/exercises/conv.h"

MmaPosition mma_position(MmaMatrix matrix, int row, int column) {
  MmaPosition position = {0, 0, false};
  // ---- your code ----
  // ---- end of your code ----
  return position;
}
