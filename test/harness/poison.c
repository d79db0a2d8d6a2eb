#include "test/harness/poison.h"
#include <string.h>

enum { GUARD = 256, GUARD_BYTE = 0xA5, POISON_BYTE = 0xFF }; // all ones is NaN in every float format, -1 as an int

// The end of a step of the program: what nobody may read any more and what nobody has written yet becomes NaN.
static void poison_step(Graph *g, int step) {
  for (int i = 0; i < g->num_blocks; i++) {
    const ArenaBlock *b = &g->blocks[i];
    const unsigned char *guard = (unsigned char *)g->arena + b->offset + b->bytes - GUARD;
    if (b->first > step || step > b->last) continue;
    for (int j = 0; j < GUARD; j++) CHECK(guard[j] == GUARD_BYTE);
    if (b->last == step || (b->idle_before && b->idle_after == step))
      memset(g->arena + b->offset, POISON_BYTE, b->bytes - GUARD);
  }
  for (int i = 0; i < g->num_blocks; i++) {
    const ArenaBlock *b = &g->blocks[i];
    if (b->first != step + 1) continue;
    memset(g->arena + b->offset, POISON_BYTE, b->bytes - GUARD);
    memset(g->arena + b->offset + b->bytes - GUARD, GUARD_BYTE, GUARD);
  }
}

static void poison_until(Poison *p, Graph *g, int step) {
  while (p->done < step) poison_step(g, ++p->done);
}

static void begin(Observer *o, Graph *g, Pass pass) {
  Poison *p = (Poison *)o;
  if (pass == PASS_BACKWARD) return;
  p->done = -2;
  poison_until(p, g, -1);
}

static void before(Observer *o, Graph *g, Node *n, Pass pass) { poison_until((Poison *)o, g, n->step[pass] - 1); }

static void end(Observer *o, Graph *g, Pass pass) {
  poison_until((Poison *)o, g, (pass == PASS_FORWARD ? g->forward_steps : g->steps) - 1);
}

void poison_start(Poison *p, Graph *g) {
  *p = (Poison){.observer = {.begin = begin, .before = before, .end = end}};
  graph_observe(g, &p->observer);
  g->bytes = 0;
  for (int i = 0; i < g->num_blocks; i++) { // nothing is shared: a late read must find NaN, not another block's values
    ArenaBlock *b = &g->blocks[i];
    b->bytes += GUARD;
    b->offset = g->bytes;
    g->bytes += (b->bytes + GUARD - 1) / GUARD * GUARD;
  }
}
