#include "test/harness/isolation.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

enum { UNDECLARED = 0xFF }; // NaN in every float format, -1 as an int

static void touch_block(Isolation *s, int block) {
  if (block >= 0) s->touched[block] = true;
}

static void touch_value(void *context, const Value *v) {
  Isolation *s = context;
  if (v->type == VALUE_TENSOR) touch_block(s, v->block);
  for (int i = 0; i < s->graph->arrays; i++)
    if (s->graph->array[i].v == v) touch_block(s, s->graph->array[i].block);
}

static void touch_gradient(void *context, const Value *owner) { touch_block(context, owner->grad_block); }

static void hide(Observer *o, Graph *g, Node *n, Pass pass) {
  Isolation *s = (Isolation *)o;
  memset(s->touched, 0, (size_t)g->num_blocks * sizeof *s->touched);
  node_touches(n, pass, &(Touch){touch_value, touch_gradient, s});
  memcpy(s->saved, g->arena, g->bytes);
  for (int i = 0; i < g->num_blocks; i++)
    if (!s->touched[i]) memset(g->arena + g->blocks[i].offset, UNDECLARED, g->blocks[i].bytes);
}

static bool is_hidden(const Graph *g, const ArenaBlock *b) {
  const unsigned char *p = (const unsigned char *)g->arena + b->offset;
  return p[0] == UNDECLARED && !memcmp(p, p + 1, b->bytes - 1);
}

static void restore(Observer *o, Graph *g, Node *n, Pass pass) {
  Isolation *s = (Isolation *)o;
  for (int i = 0; i < g->num_blocks; i++) {
    const ArenaBlock *b = &g->blocks[i];
    if (s->touched[i]) continue;
    if (!is_hidden(g, b)) {
      printf("  %s, pass %d, writes %s undeclared\n", n->name, pass, b->name);
      s->damaged++;
    }
    memcpy(g->arena + b->offset, s->saved + b->offset, b->bytes);
  }
}

void isolation_start(Isolation *s, Graph *g) {
  *s = (Isolation){.observer = {.before = hide, .after = restore},
                   .touched = xcalloc((size_t)g->num_blocks, sizeof *s->touched),
                   .saved = xmalloc(g->bytes),
                   .graph = g};
  graph_observe(g, &s->observer);
}

void isolation_stop(Isolation *s, Graph *g) {
  graph_unobserve(g, &s->observer);
  free(s->touched);
  free(s->saved);
}
