// Observers of a walk over a graph's list. Whatever times, poisons, dumps or checks a step is called before and after
// every node. A graph with observers runs node by node, and is not recorded as one program unless all of them say that
// they only queue work, as gradient communication during the backward walk does.
#pragma once
#include <stdbool.h>

typedef struct Graph Graph;
struct Node;
typedef struct Observer Observer;

typedef enum Pass { PASS_FORWARD, PASS_BACKWARD, PASSES } Pass;

// Embedded as the first member of the observer's own struct. Functions that are NULL are not called.
struct Observer {
  void (*begin)(Observer *o, Graph *g, Pass pass);                   // before the first node of a part of the walk
  void (*before)(Observer *o, Graph *g, struct Node *n, Pass pass);  // before a node runs
  void (*between)(Observer *o, Graph *g, struct Node *n, Pass pass); // before its parameters' gradients, if elsewhere
  void (*after)(Observer *o, Graph *g, struct Node *n, Pass pass);   // after it ran
  void (*end)(Observer *o, Graph *g, Pass pass);                     // after its last node
  bool queues; // its functions only queue work on the device, if anything: it may be recorded with a step
  Observer *next;
};

// Appends one; it must outlive the walks. An observer watches one graph at a time.
void graph_observe(Graph *g, Observer *o);
void graph_unobserve(Graph *g, Observer *o); // no-op where it does not watch the graph
