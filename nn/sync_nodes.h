// Debugging aid: an observer that synchronizes after every node, so that an error is reported by the node that caused
// it. Steps are not recorded as CUDA graphs meanwhile; results are the same.
#pragma once
#include "nn/graph.h"

// One for each graph that it is to watch (graph_observe).
Observer sync_nodes(void);
