// Exercise 19 of docs/course/step.md: of every gradient, the first contribution writes, later ones add, and the last
// one applies the mask. Count first how many a value gets; then follow the walk. A value may be read by several nodes,
// and by one node twice.
#include <stdlib.h>
#include "docs/course/exercises/exercises.h"

void plan_contributions(int nodes, int values, const WalkNode *node, Contribution (*write)[MOST_INS]) {
  int *contributions = calloc((size_t)values, sizeof *contributions); // that each value gets
  int *seen = calloc((size_t)values, sizeof *seen);                   // of them, so far
  for (int i = 0; i < nodes; i++)
    for (int j = 0; j < node[i].ins; j++) write[i][j] = (Contribution){false, false};
  // ---- your code ----
  // ---- end of your code ----
  free(contributions);
  free(seen);
}
