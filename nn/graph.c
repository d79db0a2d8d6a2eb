// Building and running the list. The plan of the backward walk and of memory is in nn/plan.c.
#include "nn/graph.h"
#include <stdlib.h>
#include <string.h>
#include "nn/profile.h"

const char *const part_names[PARTS] = {"input", "backbone", "fpn", "rpn", "roi heads"};

void graph_init(Graph *g, Device *dev, Params *params, bool training) {
  *g = (Graph){.dev = dev, .params = params, .act = params->shadow_dtype, .training = training};
}

void graph_free(Graph *g) {
  profile_free(g);
  for (int i = 0; i < g->nodes; i++) free(g->node[i]);
  for (int i = 0; i < g->values; i++) free(g->value[i]);
  for (int i = 0; i < g->num_names; i++) free(g->names[i]);
  free(g->node);
  free(g->value);
  free(g->names);
  free(g->blocks);
  free(g->owners);
  *g = (Graph){0};
}

// ---- building ---------------------------------------------------------------------------------------------------

const char *graph_name(Graph *g, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  char text[256];
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  g->names = xrealloc(g->names, (size_t)(g->num_names + 1) * sizeof *g->names);
  return g->names[g->num_names++] = xstrdup(text);
}

Value *graph_value(Graph *g, const char *name, Tensor shape) {
  Value *v = xcalloc(1, sizeof *v);
  *v = (Value){.name = name, .x = shape, .dx = shape, .block = -1, .grad_block = -1};
  g->value = xrealloc(g->value, (size_t)(g->values + 1) * sizeof *g->value);
  return g->value[g->values++] = v;
}

Node *graph_node(Graph *g, const NodeKind *kind, const char *name) {
  Node *n = xcalloc(1, sizeof *n);
  n->kind = kind, n->name = name, n->part = g->part;
  g->node = xrealloc(g->node, (size_t)(g->nodes + 1) * sizeof *g->node);
  return g->node[g->nodes++] = n;
}

void node_in(Node *n, Value *v, Flow flow) {
  CHECK(n->ins < MAX_IN);
  n->in[n->ins++] = (Input){.v = v, .flow = flow};
}

void node_out(Node *n, Value *v) {
  CHECK(n->outs < MAX_OUT);
  n->out[n->outs++] = v;
}

static int add_block(Graph *g, ArenaBlock block, void *owner) {
  g->blocks = xrealloc(g->blocks, (size_t)(g->num_blocks + 1) * sizeof *g->blocks);
  g->owners = xrealloc(g->owners, (size_t)(g->num_blocks + 1) * sizeof *g->owners);
  g->blocks[g->num_blocks] = block;
  g->owners[g->num_blocks] = owner;
  return g->num_blocks++;
}

void graph_memory(Graph *g, const char *name, size_t bytes, void *owner) {
  add_block(g, (ArenaBlock){.name = name, .bytes = bytes, .first = 0, .last = INT32_MAX}, owner);
}

// ---- running ----------------------------------------------------------------------------------------------------

Dest value_dest(const Value *v) { return (Dest){.t = v->x}; }

Dest node_dest(const Node *n, int input) {
  const Input *in = &n->in[input];
  CHECK(in->wanted);
  return (Dest){.t = in->v->dx, .accumulate = in->accumulate, .addend = in->addend, .mask = in->mask};
}

enum {
  GUARD = POISON_GUARD,
  GUARD_BYTE = 0xA5,
  POISON_BYTE = 0xFF
}; // all ones is NaN in every float format, -1 as an int

// Debug aid: what nobody may read any more becomes NaN, and nothing may have written past a block's end.
static void poison_step(Graph *g, int step) {
  for (int i = 0; i < g->num_blocks; i++) {
    const ArenaBlock *b = &g->blocks[i];
    const unsigned char *guard = (unsigned char *)g->arena + b->offset + b->bytes - GUARD;
    if (b->first > step || step > b->last) continue;
    for (int j = 0; j < GUARD; j++) CHECK(guard[j] == GUARD_BYTE);
    if (b->last == step) memset(g->arena + b->offset, POISON_BYTE, b->bytes - GUARD);
  }
  for (int i = 0; i < g->num_blocks; i++)
    if (g->blocks[i].first == step + 1) {
      memset(g->arena + g->blocks[i].offset, POISON_BYTE, g->blocks[i].bytes - GUARD);
      memset(g->arena + g->blocks[i].offset + g->blocks[i].bytes - GUARD, GUARD_BYTE, GUARD);
    }
}

void graph_forward(Graph *g) {
  if (g->poison) poison_step(g, -1);
  if (g->timing) profile_begin(g, 0);
  for (int i = 0; i < g->nodes; i++) {
    g->node[i]->kind->forward(g, g->node[i]);
    if (g->timing) profile_mark(g);
    if (g->poison) poison_step(g, i);
  }
  if (g->timing) profile_end(g, 0);
}

void node_backward(Graph *g, Node *n) {
  n->kind->backward(g, n);
  for (int i = 0; i < n->copies; i++) {
    const GradCopy *c = &n->copy[i];
    Dest d = {.t = c->v->dx, .accumulate = c->accumulate, .addend = c->addend, .mask = c->mask};
    g->dev->ops->copy(g->dev, c->x, &d);
  }
}

void graph_backward(Graph *g) {
  if (g->timing) profile_begin(g, 1);
  for (int i = g->nodes - 1; i >= 0; i--) {
    if (g->node[i]->runs_backward) {
      node_backward(g, g->node[i]);
      if (g->timing) profile_mark(g);
    }
    if (g->poison) poison_step(g, 2 * g->nodes - 1 - i);
  }
  if (g->timing) profile_end(g, 1);
}
