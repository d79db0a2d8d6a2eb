// Executes the plan on gradients that are initially NaN, and compares with sums over all paths. Node i computes out = Σ
// (j + 2) · in[j]; the mask of a value is a factor that depends on the value. All numbers are small integers.
#include <math.h>
#include <string.h>
#include "base/rng.h"
#include "docs/course/exercises/check.h"
#include "docs/course/exercises/exercises.h"

enum { MOST_NODES = 12 };

static double mask_of(int value) { return value % 3 ? 1 : -1; } // 1 or -1, so that a missing mask changes the result

// The gradient of the last node's result with respect to `value`: the sum of all contributions, times the mask.
static double wanted(int nodes, const WalkNode *node, int value) {
  double sum = 0;
  int readers = 0;
  if (value == node[nodes - 1].out) return 1;
  for (int i = 0; i < nodes; i++)
    for (int j = 0; j < node[i].ins; j++)
      if (node[i].in[j] == value) {
        readers++;
        sum += (j + 2) * wanted(nodes, node, node[i].out);
      }
  return readers ? sum * mask_of(value) : 0;
}

static void check(const char *what, int nodes, const WalkNode *node) {
  Contribution write[MOST_NODES][MOST_INS];
  double gradient[MOST_NODES + 1];
  const int values = nodes + 1;
  memset(write, 1, sizeof write);
  plan_contributions(nodes, values, node, write);
  for (int v = 0; v < values; v++) gradient[v] = NAN;
  gradient[node[nodes - 1].out] = 1;
  for (int i = nodes - 1; i >= 0; i--)
    for (int j = 0; j < node[i].ins; j++) {
      double *to = &gradient[node[i].in[j]];
      *to = (j + 2) * gradient[node[i].out] + (write[i][j].accumulate ? *to : 0);
      if (write[i][j].mask) *to *= mask_of(node[i].in[j]);
    }
  for (int v = 0; v < values; v++)
    if (gradient[v] != wanted(nodes, node, v))
      difference("%s: the gradient of value %d is %g, not %g", what, v, gradient[v], wanted(nodes, node, v));
}

// Node i makes value i + 1; value 0 is the input. Every value is read at least by the next node.
static void check_drawn(int graph) {
  WalkNode node[MOST_NODES];
  char what[32];
  const int nodes = 3 + graph % (MOST_NODES - 2);
  for (int i = 0; i < nodes; i++) {
    node[i] = (WalkNode){1 + (int)(rng_u32((uint64_t)graph, (uint64_t)i) % MOST_INS), {i}, i + 1};
    for (int j = 1; j < node[i].ins; j++)
      node[i].in[j] = (int)(rng_u32((uint64_t)graph, (uint64_t)(100 + 10 * i + j)) % (uint32_t)(i + 1));
  }
  snprintf(what, sizeof what, "graph %d", graph);
  check(what, nodes, node);
}

int main(void) {
  const WalkNode chain[] = {{1, {0}, 1}, {1, {1}, 2}, {1, {2}, 3}};
  const WalkNode residual[] = {{1, {0}, 1}, {1, {1}, 2}, {2, {2, 0}, 3}};
  const WalkNode twice[] = {{1, {0}, 1}, {2, {1, 1}, 2}};
  check("a chain", 3, chain);
  check("a residual block", 3, residual);
  check("a node that reads a value twice", 2, twice);
  for (int graph = 0; graph < 200; graph++) check_drawn(graph);
  return solved();
}
