// Isolation: an observer that shows every read and write that a node does not declare. What the node that runs does not
// touch by its declarations is NaN while it runs, must still be so afterwards, and is put back. On a CPU; the graph is
// poisoned first, so that no two values share memory.
#pragma once
#include "nn/graph.h"

typedef struct Isolation {
  Observer observer;
  bool *touched; // [graph.num_blocks] by the node that runs
  char *saved;   // [graph.bytes]
  int damaged;   // blocks that a node wrote undeclared, so far
  const Graph *graph;
} Isolation;

// After poison_start and graph_bind.
void isolation_start(Isolation *s, Graph *g);
void isolation_stop(Isolation *s, Graph *g);
