// Node by node: an observer that waits for the device after every node, so that a fault is found where it arises and
// the message names the node. Nothing is recorded under it; the results are the same.
#pragma once
#include "nn/graph.h"

// One for each graph that it is to watch (graph_observe).
Observer sync_nodes(void);
