// Exercise 19 of docs/course/step.md: the first contribution to a gradient writes, later ones add, and the last one
// applies the mask. First count each value's contributions, then follow the walk. A value may be read by several nodes,
// and twice by the same node.
#include <stdlib.h>
#include "docs/course/exercises/exercises.h"

void plan_contributions(int nodes, int values, const WalkNode *node, Contribution (*write)[MOST_INS]) {
  int *contributions = calloc((size_t)values, sizeof *contributions); // contributions to each value's gradient
  int *seen = calloc((size_t)values, sizeof *seen);                   // contributions seen so far
  for (int i = 0; i < nodes; i++)
    for (int j = 0; j < node[i].ins; j++) write[i][j] = (Contribution){false, false};
  // ---- your code ----
  // ---- end of your code ----
  free(contributions);
  free(seen);
}
