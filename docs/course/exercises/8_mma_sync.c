// Exercise 8 of docs/course/conv/08_mma_sync.md: the layout of mma.sync's operands, inverted. The chapter says which
// elements a lane's registers hold; here, find the lane and the register of an element.
#include "docs/course/exercises/conv.h"

MmaPosition mma_position(MmaMatrix matrix, int row, int column) {
  MmaPosition position = {0, 0, false};
  // ---- your code ----
  // ---- end of your code ----
  return position;
}
