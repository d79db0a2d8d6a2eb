// Poison: an observer that shows reads outside of a value's life and writes past its end. On a CPU.
#pragma once
#include "nn/graph.h"

typedef struct Poison {
  Observer observer;
  int done; // steps up to this one are poisoned
} Poison;

// Between graph_plan and graph_bind: every block gets memory of its own with a guard behind it, so the arena grows.
// From then on a block is filled with NaN before and after its life, and a walk ends the program when a guard is
// damaged.
void poison_start(Poison *p, Graph *g);
