// Profile: where the time of a walk goes, node by node, against what the device could do.
#pragma once
#include "nn/graph.h"

// While a graph is timed, the walks call these: at the start, after every node that ran, at the end. Nothing is waited
// for in between, so that on a GPU the kernels run back to back, as they do in a step that is not timed.
// pass: 0 = forward, 1 = backward.
void profile_begin(Graph *g, int pass);
void profile_mark(Graph *g);
void profile_end(Graph *g, int pass); // adds to the nodes' seconds and work
void profile_free(Graph *g);

// A row per node, per part and for all: mean time of a walk, share of all the time, and for each pass the rate in what
// bounds it and the share of the ceiling that it reaches.
void profile_print(const Graph *g, FILE *out);
