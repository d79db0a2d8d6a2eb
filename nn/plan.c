// graph_plan: everything about a step that can be known beforehand.
//
// Backward: contributions to a gradient arrive in the order of the walk (nn/walk.c). The first writes (=), later ones
// add (+=), the last one applies the ReLU mask. Identity contributions (residual, FPN top-down) make no pass of their
// own: they wait as `pending` until a dense contribution takes them along as its addend; one that stays alone and needs
// no mask makes dx an alias of the gradient it equals; else it is copied.
//
// Concatenation: parts that nobody else reads, of nodes that write slices, are written into the whole (place_parts),
// and their gradients are slices of its gradient; then the node has nothing to do.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "nn/graph.h"

// ---- concatenation in place -------------------------------------------------------------------------------------

// The mask of a ReLU is then the whole's, which has to be a ReLU's in all of its channels or in none.
static bool part_fits(const Graph *g, const Node *concat, int i, int first) {
  const Value *v = concat->in[i].v;
  const Node *writer = graph_writer(g, v);
  return writer && writer->type->slices && writer->ins == 1 && writer->outs == 1 && graph_readers(g, v) == 1 &&
         !v->keep && !v->rows && v->relu == concat->in[0].v->relu && first % 8 == 0;
}

static void place_parts(const Graph *g, Node *n) {
  Value *whole = n->out[0];
  n->in_place = !whole->rows;
  for (int i = 0, first = 0; i < n->ins; first += n->in[i++].v->x.c) n->in_place &= part_fits(g, n, i, first);
  if (!n->in_place) return;
  whole->relu = n->in[0].v->relu;
  for (int i = 0, first = 0; i < n->ins; first += n->in[i++].v->x.c) {
    Value *v = n->in[i].v;
    v->whole = whole;
    v->first = first;
    v->x.ldc = v->dx.ldc = whole->x.ldc;
  }
}

// ---- contributions ----------------------------------------------------------------------------------------------

static bool trains(const Param *p) { return p && p->trainable; }

static bool node_trains(const Node *n) {
  bool any = false;
  for (int i = 0; i < n->uses; i++) any |= trains(n->use[i].p);
  return any;
}

static bool takes_gradient(const Input *in) { return in->flow != FLOW_NONE && in->v->needs_grad; }

static void count_contributions(const Node *n) {
  for (int i = 0; i < n->outs; i++) CHECK(n->type->source || n->out[i]->contributions > 0); // every dy exists
  for (int i = 0; i < n->ins; i++)
    if (takes_gradient(&n->in[i])) n->in[i].v->contributions++;
}

// To parameters, in the order of the walk.
static void count_uses(Graph *g) {
  for (int i = 0; i < g->params->n; i++) g->params->list[i]->contributions = 0; // another graph may have counted
  for (int i = 0; i < g->steps; i++) {
    Node *n = g->walk[i].node;
    for (int j = 0; j < n->uses && g->walk[i].pass == PASS_BACKWARD; j++) {
      Param *p = n->use[j].p;
      if (!trains(p)) continue;
      n->use[j].accumulate = p->contributions++ > 0;
      p->last_use = i;
    }
  }
}

// Which values have something trainable before them, which nodes run backward, how often each gradient is added to.
static void find_flow(Graph *g) {
  for (int i = 0; i < g->nodes; i++) {
    Node *n = g->node[i];
    bool grad = node_trains(n);
    for (int j = 0; j < n->ins; j++) grad |= takes_gradient(&n->in[j]);
    for (int j = 0; j < n->outs; j++) n->out[j]->needs_grad = grad && n->type->backward;
  }
  for (int i = g->nodes - 1; i >= 0; i--) {
    Node *n = g->node[i];
    bool reached = n->type->source, useful = node_trains(n);
    for (int j = 0; j < n->outs; j++) reached |= n->out[j]->contributions > 0;
    for (int j = 0; j < n->ins; j++) useful |= takes_gradient(&n->in[j]);
    n->runs_backward = reached && useful && n->type->backward;
    if (n->runs_backward) count_contributions(n);
  }
}

// ---- who writes, who adds ---------------------------------------------------------------------------------------

typedef struct GradState { // of a value, while the backward walk is simulated
  int seen;                // contributions so far
  bool written;            // dx holds something
  const Value *pending;    // whose dx waits to be added
} GradState;

static bool same_shape(const Value *a, const Value *b) { return a->dx.h == b->dx.h && a->dx.w == b->dx.w; }

static void add_copy(Node *n, GradCopy copy) {
  CHECK(n->copies < MAX_COPIES);
  n->copy[n->copies++] = copy;
}

static void dense_contribution(Input *in, GradState *s, const Value *mask) {
  in->wanted = true;
  in->accumulate = s->written;
  in->addend = s->pending;
  in->mask = mask;
  s->written = true;
  s->pending = NULL;
}

static void identity_contribution(Node *n, Input *in, GradState *s, bool last, const Value *mask) {
  Value *v = in->v, *y = n->out[0];
  if (!last && !s->pending) {
    s->pending = y;
    return;
  }
  if (last && !s->written && !s->pending && !mask && same_shape(v, y)) {
    v->alias = y;
    return;
  }
  GradCopy copy = {.to = v, .addend = y, .accumulate = s->written, .mask = mask};
  if (s->pending) { // two identities meet: both in one pass, one of them as the source
    bool first_fits = same_shape(v, s->pending);
    CHECK(first_fits || same_shape(v, y));
    copy.from = first_fits ? s->pending : y;
    copy.addend = first_fits ? y : s->pending;
    s->pending = NULL;
  }
  s->written = true;
  add_copy(n, copy);
}

static void resolve_inputs(Node *n, Flow flow, GradState *states) {
  for (int i = 0; i < n->ins; i++) {
    Input *in = &n->in[i];
    if (in->flow != flow || !in->v->needs_grad) continue;
    GradState *s = &states[in->v->id];
    bool last = ++s->seen == in->v->contributions;
    const Value *mask = last && in->v->relu ? in->v : NULL;
    if (flow == FLOW_DENSE)
      dense_contribution(in, s, mask);
    else
      identity_contribution(n, in, s, last, mask);
  }
}

static void resolve_gradients(Graph *g) {
  GradState *states = xcalloc((size_t)g->values, sizeof *states);
  for (int i = 0; i < g->steps; i++) {
    Node *n = g->walk[i].node;
    if (g->walk[i].pass == PASS_FORWARD || n->in_place) continue;
    resolve_inputs(n, FLOW_DENSE, states); // first: a node's identity may not be the last of its own dense input
    resolve_inputs(n, FLOW_IDENTITY, states);
  }
  free(states);
}

// ---- lifetimes --------------------------------------------------------------------------------------------------

// The values that own the memory of v and of its gradient.
static const Value *owner_of(const Value *v) { return v->whole ? v->whole : v; }
static const Value *grad_owner(const Value *v) {
  v = owner_of(v);
  while (v->alias) v = v->alias;
  return v;
}

// Whoever touches a tensor reads how many of its rows hold data, too.
static void touch(const Touch *t, const Value *v) {
  t->value(t->context, owner_of(v));
  if (v->rows) t->value(t->context, v->rows);
}

static void touch_grad(const Touch *t, const Value *v) {
  t->gradient(t->context, grad_owner(v));
  if (v->rows) t->value(t->context, v->rows);
}

static void touch_destination(const Touch *t, const Value *to, const Value *addend, const Value *mask) {
  touch_grad(t, to);
  if (addend) touch_grad(t, addend);
  if (mask) touch(t, mask);
}

static void touch_backward(const Node *n, const Touch *t) {
  for (int i = 0; i < n->saves; i++) touch(t, n->save[i]);
  for (int i = 0; i < n->outs && !n->type->source; i++) touch_grad(t, n->out[i]);
  for (int i = 0; i < n->ins; i++) {
    const Input *in = &n->in[i];
    if (in->flow == FLOW_NONE || (in->flow == FLOW_DENSE && n->type->reads_in)) touch(t, in->v);
    if (in->wanted) touch_destination(t, in->v, in->addend, in->mask);
  }
  for (int i = 0; i < n->copies; i++) {
    const GradCopy *c = &n->copy[i];
    touch_destination(t, c->to, c->addend, c->mask);
    if (c->from) touch_grad(t, c->from);
  }
}

void node_touches(const Node *n, Pass pass, const Touch *t) {
  if (pass == PASS_BACKWARD) {
    touch_backward(n, t);
    return;
  }
  for (int i = 0; i < n->ins; i++) touch(t, n->in[i].v);
  for (int i = 0; i < n->outs; i++) touch(t, n->out[i]);
  for (int i = 0; i < n->saves; i++) touch(t, n->save[i]);
  for (int i = 0; i < n->asides; i++) touch(t, n->aside[i]);
}

typedef struct Life { // steps, both inclusive
  int first, last;
} Life;

typedef struct Lives { // by Value.id
  Life *x, *dx;
  const Step *step; // that is being looked at
} Lives;

static void extend(Life *life, const Step *s) {
  life->first = MIN(life->first, s->first);
  life->last = MAX(life->last, s->last);
}

static void extend_value(void *context, const Value *v) {
  const Lives *l = context;
  extend(&l->x[v->id], l->step);
}

static void extend_gradient(void *context, const Value *v) {
  const Lives *l = context;
  extend(&l->dx[v->id], l->step);
}

static void find_lives(const Graph *g, Lives *lives) {
  const Touch touch_lives = {extend_value, extend_gradient, lives};
  for (int i = 0; i < g->values; i++) lives->x[i] = lives->dx[i] = (Life){INT32_MAX, -1};
  for (int i = 0; i < g->steps; i++) {
    lives->step = &g->walk[i];
    node_touches(lives->step->node, lives->step->pass, &touch_lives);
  }
  for (int i = 0; i < g->values; i++) { // nothing is kept that no node touches
    const Value *v = g->value[i];
    bool keep = v->keep || v->type != VALUE_TENSOR;
    if (keep && lives->x[i].last >= 0) lives->x[i].last = INT32_MAX;
  }
}

enum { RECOMPUTED_SHARE = 64 }; // of the arena, at most one in so many bytes

typedef struct Search {
  const Value *v;
  bool found;
} Search;

static void compare_value(void *context, const Value *v) {
  Search *s = context;
  s->found |= v == s->v;
}

static void ignore_gradient(void *context, const Value *v) {
  (void)context;
  (void)v;
}

bool node_has(const Node *n, Pass pass, const Value *v) {
  Search s = {.v = v};
  node_touches(n, pass, &(Touch){compare_value, ignore_gradient, &s});
  return s.found;
}

// What is recomputed for backward, by the first node there that reads it, is idle from its last reader forward. Whether
// any is: where a value is a small enough share of all, the pass that makes it is a small share of a step.
static bool find_recomputed(Graph *g) {
  bool any = false;
  for (int i = 0; i < g->nodes; i++) g->node[i]->recompute = NULL; // the plan may be made again
  for (int i = 0; i < g->nodes; i++) {
    Node *n = g->node[i];
    if (!n->type->recomputed || n->out[0]->keep) continue;
    for (int j = 0; j < n->ins; j++) CHECK(n->in[j].v->type == VALUE_IMAGES);
    Value *v = n->out[0];
    const Step *first = NULL;
    int last = n->step[PASS_FORWARD];
    if (g->blocks[v->block].bytes * RECOMPUTED_SHARE > g->bytes) continue;
    for (int j = g->steps - 1; j >= 0; j--) {
      const Step *s = &g->walk[j];
      if (!node_has(s->node, s->pass, v)) continue;
      if (s->pass == PASS_BACKWARD)
        first = s;
      else
        last = MAX(last, s->last);
    }
    if (!first || first->first <= last || first->node->recompute) continue;
    any = true;
    first->node->recompute = n;
    g->blocks[v->block].idle_after = last;
    g->blocks[v->block].idle_before = first->first;
  }
  return any;
}

static int add_block(Graph *g, const char *name, size_t bytes, Life life) {
  g->blocks = xrealloc(g->blocks, (size_t)(g->num_blocks + 1) * sizeof *g->blocks);
  g->blocks[g->num_blocks] = (ArenaBlock){.name = name, .bytes = bytes, .first = life.first, .last = life.last};
  return g->num_blocks++;
}

static void plan_memory(Graph *g) {
  const size_t n = (size_t)g->values;
  Lives lives = {.x = xcalloc(n, sizeof *lives.x), .dx = xcalloc(n, sizeof *lives.dx)};
  g->num_blocks = 0;
  find_lives(g, &lives);
  for (int i = 0; i < g->values; i++) {
    Value *v = g->value[i];
    if (v->type != VALUE_TENSOR) continue;
    Life x = lives.x[i], dx = lives.dx[i];
    if (x.last >= 0) v->block = add_block(g, v->name, tensor_bytes(&v->x), x);
    if (dx.last >= 0) v->grad_block = add_block(g, graph_name(g, "d(%s)", v->name), tensor_bytes(&v->dx), dx);
  }
  for (int i = 0; i < g->arrays; i++) {
    RecordArray *a = &g->array[i];
    if (lives.x[a->v->id].last >= 0) a->block = add_block(g, a->v->name, a->bytes, lives.x[a->v->id]);
  }
  free(lives.x);
  free(lives.dx);
  g->bytes = arena_plan(g->blocks, g->num_blocks);
  if (find_recomputed(g)) g->bytes = arena_plan(g->blocks, g->num_blocks);
}

void graph_plan(Graph *g) {
  for (int i = 0; i < g->nodes; i++)
    if (g->node[i]->type->concat) place_parts(g, g->node[i]);
  if (g->training) find_flow(g);
  walk_order(g);
  if (g->training) {
    count_uses(g);
    resolve_gradients(g);
  }
  plan_memory(g);
  if (!g->training) return;
  const size_t in_order = g->bytes;
  walk_beside(g);
  plan_memory(g);
  g->beside_bytes = g->bytes > in_order ? g->bytes - in_order : 0;
}

static void *block_address(const Graph *g, int block) { return block >= 0 ? g->arena + g->blocks[block].offset : NULL; }

static void *slice_address(void *whole, const Value *v) {
  return whole ? (char *)whole + (size_t)v->first * dtype_size(v->x.dtype) : NULL;
}

void graph_bind(Graph *g, void *arena) {
  g->arena = arena;
  for (int i = 0; i < g->arrays; i++) {
    void *address = block_address(g, g->array[i].block);
    memcpy(g->array[i].owner, &address, sizeof address);
  }
  for (int i = 0; i < g->values; i++) {
    Value *v = g->value[i];
    if (v->type != VALUE_TENSOR) continue;
    v->x.data = slice_address(block_address(g, owner_of(v)->block), v);
    v->dx.data = slice_address(block_address(g, grad_owner(v)->grad_block), v);
    if (v->rows) v->x.count = v->dx.count = v->rows->rois.count;
  }
}
