// Joules of inference, node by node: an observer that, when a node has run, has it run for long, back to back
// (nn/sustained.h), while what it reads is still there. The walk takes as long as all of that. Not of training, where a
// batch norm that runs again moves its running statistics again.
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

// A row per node, per kind of node and for all: time of a call from rest and for long, watts, joules, clock. Nothing
// when no walk was measured.
void node_energy_print(const NodeEnergy *e, const Graph *g, FILE *out);
