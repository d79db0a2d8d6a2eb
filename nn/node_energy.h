// Energy of inference, node by node: an observer that, after each node, runs it again back to back for a while
// (nn/sustained.h) on the same inputs. The walk takes accordingly long. It does not suit training, where repeating a
// batch norm would update its running statistics again.
#pragma once
#include <stdio.h>
#include "nn/graph.h"
#include "nn/sustained.h"

typedef struct NodeEnergy {
  Observer observer;
  double seconds;  // that each node runs
  void *meter;     // NULL: the device has none
  Sustained *node; // [graph.nodes] of the last walk
  bool walked;
} NodeEnergy;

// From here to node_energy_free, forward walks of the graph are measured.
void node_energy_start(NodeEnergy *e, Graph *g, double seconds);
void node_energy_free(NodeEnergy *e, Graph *g);

// One row per node, per type of node, and for all: time of a call from rest and for long, watts, joules, clock. Nothing
// when no walk was measured.
void node_energy_print(const NodeEnergy *e, const Graph *g, FILE *out);
