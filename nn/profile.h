// Profile: where the time of a walk goes, node by node, against what the device could do. An observer that waits for
// nothing between nodes, so that on a GPU the kernels run back to back, as they do in a step that is not timed.
#pragma once
#include <stdio.h>
#include "base/trace.h"
#include "nn/graph.h"
#include "nn/timing.h"

typedef struct NodeProfile { // sums over the walks
  double seconds[PASSES];
  Work work[PASSES];
} NodeProfile;

typedef struct Profile {
  Observer observer;
  NodeProfile *node;         // [graph.nodes]
  int walks;                 // forward
  Trace *trace;              // every node as an event; NULL = none
  double walk_start[PASSES]; // now_seconds when the last walk began; the device had nothing else to do
  Mark *marks;               // of the part of a walk under way: its start, then the end of every step
  int marked;
} Profile;

// From here to profile_stop, which frees nothing, walks of the graph are timed; what they add up to is kept.
void profile_start(Profile *p, Graph *g, Trace *trace);
void profile_stop(Profile *p, Graph *g);
void profile_free(Profile *p, Graph *g);

// One row per node, per part, per type of node, and for all: mean time of a walk, share of all the time, and for each
// pass the rate in what bounds it and the share of the ceiling that it reaches. Nothing when no walk was timed.
void profile_print(const Profile *p, const Graph *g, FILE *out);
