#include "nn/node_energy.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

typedef struct RepeatedNode {
  Graph *g;
  Node *n;
} RepeatedNode;

static void queue_node(void *context) {
  const RepeatedNode *r = context;
  r->n->type->forward(r->g, r->n);
}

static void after(Observer *o, Graph *g, Node *n, Pass pass) {
  NodeEnergy *e = (NodeEnergy *)o;
  if (pass != PASS_FORWARD) return;
  const SustainedTimes times = {.rest = 0.02, .settle = e->seconds / 4, .window = e->seconds};
  RepeatedNode r = {g, n};
  e->node[n->id] = sustained_measure(g->dev, e->meter, &times, queue_node, &r);
  e->walked = true;
}

void node_energy_start(NodeEnergy *e, Graph *g, double seconds) {
  const Timing *timing = g->dev->memory->timing;
  *e = (NodeEnergy){.observer = {.after = after}, .seconds = seconds};
  e->node = xcalloc((size_t)g->nodes, sizeof *e->node);
  if (timing->meter_open) e->meter = timing->meter_open(g->dev);
  graph_observe(g, &e->observer);
}

void node_energy_free(NodeEnergy *e, Graph *g) {
  graph_unobserve(g, &e->observer);
  if (e->meter) g->dev->memory->timing->meter_close(e->meter);
  free(e->node);
  *e = (NodeEnergy){0};
}

// ---- printing -----------------------------------------------------------------------------------------------------

typedef struct EnergyRow { // sums over nodes, of a call each
  double cold, seconds, joules, megacycles;
} EnergyRow;

static void row_add(EnergyRow *sum, const Sustained *s) {
  sum->cold += s->cold;
  sum->seconds += s->seconds;
  sum->joules += s->joules;
  sum->megacycles += s->mhz * s->seconds;
}

static void print_row(const char *name, const char *type, const EnergyRow *r, const EnergyRow *all, FILE *out) {
  fprintf(out, "%-41s %-12s %9.4f ms %9.4f ms", name, type, 1e3 * r->cold, 1e3 * r->seconds);
  if (isnan(r->joules))
    fprintf(out, "       - W         - J      -  %5s MHz\n", "-");
  else
    fprintf(out, " %7.1f W %9.5f J %5.1f%%  %5.0f MHz\n", r->joules / r->seconds, r->joules,
            100 * r->joules / all->joules, r->megacycles / r->seconds);
}

// The sum over all nodes of a type; NULL: over all nodes.
static EnergyRow sum_nodes(const NodeEnergy *e, const Graph *g, const NodeType *type) {
  EnergyRow sum = {0};
  for (int i = 0; i < g->nodes; i++)
    if (!type || g->node[i]->type == type) row_add(&sum, &e->node[i]);
  return sum;
}

void node_energy_print(const NodeEnergy *e, const Graph *g, FILE *out) {
  if (!e->walked) return;
  const EnergyRow all = sum_nodes(e, g, NULL);
  fprintf(out, "%-41s %-12s %12s %12s %9s %11s %6s  %s\n", "node", "type", "cold", "sustained", "power", "energy",
          "share", "clock");
  for (int i = 0; i < g->nodes; i++) {
    EnergyRow one = {0};
    row_add(&one, &e->node[i]);
    print_row(g->node[i]->name, g->node[i]->type->name, &one, &all, out);
  }
  for (int i = 0; i < g->nodes; i++) {
    bool first = true;
    for (int k = 0; k < i; k++) first &= g->node[k]->type != g->node[i]->type;
    const EnergyRow sum = sum_nodes(e, g, g->node[i]->type);
    if (first) print_row("all", g->node[i]->type->name, &sum, &all, out);
  }
  print_row("all nodes", "", &all, &all, out);
}
