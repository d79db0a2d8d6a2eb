#include "nn/sync_nodes.h"
#include "nn/fault.h"

static const char *const passes[PASSES] = {"forward", "backward"};

static void name_node(Observer *o, Graph *g, Node *n, Pass pass) {
  (void)o;
  (void)g;
  fault_context(true, "the %s pass of %s (%s)", passes[pass], n->name, n->type->name);
}

static void wait_for_node(Observer *o, Graph *g, Node *n, Pass pass) {
  (void)o;
  (void)n;
  (void)pass;
  device_sync(g->dev);
}

static void name_what_follows(Observer *o, Graph *g, Pass pass) {
  (void)o;
  (void)g;
  fault_context(true, "what follows the %s pass", passes[pass]);
}

Observer sync_nodes(void) { return (Observer){.before = name_node, .after = wait_for_node, .end = name_what_follows}; }
