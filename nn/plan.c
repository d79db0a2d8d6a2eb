// graph_plan: everything about a step that can be known beforehand.
//
// Backward walk: contributions to a gradient arrive in reverse order of the consumers. The first writes (=), later ones
// add (+=), the last one applies the ReLU mask. Identity contributions (residual, FPN top-down) make no pass of their
// own: they wait as `pending` until a dense contribution takes them along as its addend; one that stays alone and needs
// no mask makes dx an alias of the gradient it equals; else it is copied.
//
// Time: node i runs forward at step i and backward at step 2·nodes - 1 - i.
#include <stdlib.h>
#include <string.h>
#include "nn/graph.h"

static int index_of(const Graph *g, const Value *v) {
  for (int i = 0; i < g->values; i++)
    if (g->value[i] == v) return i;
  CHECK(!"value of another graph");
  return -1;
}

static bool trains(const Param *p) { return p && p->trainable; }

static bool node_trains(const Node *n) {
  return trains(n->filter) || trains(n->bias) || trains(n->gamma) || trains(n->beta);
}

// Which values have something trainable before them, which nodes run backward, how often each gradient is added to.
static void find_flow(Graph *g) {
  for (int i = 0; i < g->params->n; i++) g->params->list[i]->contributions = 0; // another graph may have counted
  for (int i = 0; i < g->nodes; i++) {
    Node *n = g->node[i];
    bool grad = node_trains(n);
    for (int j = 0; j < n->ins; j++) grad |= n->in[j].flow != FLOW_NONE && n->in[j].v->needs_grad;
    for (int j = 0; j < n->outs; j++) n->out[j]->needs_grad = grad && n->kind->backward;
  }
  for (int i = g->nodes - 1; i >= 0; i--) {
    Node *n = g->node[i];
    bool reached = n->kind->source;
    for (int j = 0; j < n->outs; j++) reached |= n->out[j]->contributions > 0;
    bool useful = node_trains(n);
    for (int j = 0; j < n->ins; j++) useful |= n->in[j].flow != FLOW_NONE && n->in[j].v->needs_grad;
    n->runs_backward = reached && useful && n->kind->backward;
    if (!n->runs_backward) continue;
    for (int j = 0; j < n->outs; j++) CHECK(n->kind->source || n->out[j]->contributions > 0); // every dy exists
    for (int j = 0; j < n->ins; j++)
      if (n->in[j].flow != FLOW_NONE && n->in[j].v->needs_grad) n->in[j].v->contributions++;
    Param *params[] = {n->filter, n->bias, n->gamma, n->beta};
    for (int j = 0; j < COUNT(params); j++)
      if (trains(params[j])) {
        n->accumulate_params = params[j]->contributions++ > 0;
        params[j]->last_use = 2 * g->nodes - 1 - i;
      }
  }
}

typedef struct Walk {   // per value, while the backward walk is simulated
  int seen;             // contributions so far
  bool written;         // dx holds something
  const Value *pending; // value whose dx waits to be added
} Walk;

static bool same_shape(const Tensor *a, const Tensor *b) { return a->h == b->h && a->w == b->w; }

static void add_copy(Node *n, GradCopy copy) {
  CHECK(n->copies < MAX_COPIES);
  n->copy[n->copies++] = copy;
}

static void identity_contribution(Node *n, Input *in, Walk *w, bool last, const Tensor *mask) {
  Value *v = in->v;
  const Value *y = n->out[0];
  if (!last && !w->pending) {
    w->pending = y;
    return;
  }
  if (last && !w->written && !w->pending && !mask && same_shape(&v->dx, &y->dx)) {
    v->alias = (Value *)y;
    return;
  }
  GradCopy copy = {.v = v, .addend = &y->dx, .accumulate = w->written, .mask = mask};
  if (w->pending) { // two identities meet: both in one pass, one of them as the source
    bool first_fits = same_shape(&v->dx, &w->pending->dx);
    CHECK(first_fits || same_shape(&v->dx, &y->dx));
    copy.x = first_fits ? &w->pending->dx : &y->dx;
    copy.addend = first_fits ? &y->dx : &w->pending->dx;
    w->pending = NULL;
  }
  w->written = true;
  add_copy(n, copy);
}

static void resolve_gradients(Graph *g) {
  Walk *walk = xcalloc((size_t)g->values, sizeof *walk);
  for (int i = g->nodes - 1; i >= 0; i--) {
    Node *n = g->node[i];
    if (!n->runs_backward) continue;
    for (int pass = 0; pass < 2;
         pass++) // dense ones first: a node's identity may not be the last of its own dense input
      for (int j = 0; j < n->ins; j++) {
        Input *in = &n->in[j];
        if (in->flow != (pass ? FLOW_IDENTITY : FLOW_DENSE) || !in->v->needs_grad) continue;
        Walk *w = &walk[index_of(g, in->v)];
        bool last = ++w->seen == in->v->contributions;
        const Tensor *mask = last && in->v->relu ? &in->v->x : NULL;
        if (pass) {
          identity_contribution(n, in, w, last, mask);
          continue;
        }
        in->wanted = true;
        in->accumulate = w->written;
        in->addend = w->pending ? &w->pending->dx : NULL;
        in->mask = mask;
        w->written = true;
        w->pending = NULL;
      }
  }
  free(walk);
}

// ---- lifetimes --------------------------------------------------------------------------------------------------

typedef struct Life {
  int first, last;
} Life;

static void touch(Life *life, int step) {
  life->first = MIN(life->first, step);
  life->last = MAX(life->last, step);
}

// The value that owns the memory of v's gradient.
static const Value *grad_owner(const Value *v) {
  while (v->alias) v = v->alias;
  return v;
}

static const Value *owner_of(const Graph *g, const Tensor *dx) {
  for (int i = 0; i < g->values; i++)
    if (&g->value[i]->dx == dx) return grad_owner(g->value[i]);
  CHECK(!"not a gradient");
  return NULL;
}

static void touch_grad(const Graph *g, Life *grads, const Tensor *dx, int step) {
  if (dx) touch(&grads[index_of(g, owner_of(g, dx))], step);
}

static const Value *masking_value(const Graph *g, const Tensor *mask) {
  for (int i = 0; i < g->values; i++)
    if (&g->value[i]->x == mask) return g->value[i];
  CHECK(!"not a value");
  return NULL;
}

static void find_lifetimes(Graph *g, Life *x, Life *dx) {
  int end = 2 * g->nodes;
  for (int i = 0; i < g->values; i++) x[i] = dx[i] = (Life){INT32_MAX, -1};
  for (int i = 0; i < g->nodes; i++) {
    const Node *n = g->node[i];
    int forward = i, backward = end - 1 - i;
    for (int j = 0; j < n->outs; j++) touch(&x[index_of(g, n->out[j])], forward);
    for (int j = 0; j < n->ins; j++) touch(&x[index_of(g, n->in[j].v)], forward);
    if (!n->runs_backward) continue;
    for (int j = 0; j < n->outs; j++) {
      if (n->kind->reads_out) touch(&x[index_of(g, n->out[j])], backward);
      if (!n->kind->source) touch_grad(g, dx, &n->out[j]->dx, backward);
    }
    for (int j = 0; j < n->ins; j++) {
      const Input *in = &n->in[j];
      if (n->kind->reads_in && in->flow != FLOW_IDENTITY) touch(&x[index_of(g, in->v)], backward);
      if (!in->wanted) continue;
      touch_grad(g, dx, &in->v->dx, backward);
      touch_grad(g, dx, in->addend, backward);
      if (in->mask) touch(&x[index_of(g, masking_value(g, in->mask))], backward);
    }
    for (int j = 0; j < n->copies; j++) {
      const GradCopy *c = &n->copy[j];
      touch_grad(g, dx, &c->v->dx, backward);
      touch_grad(g, dx, c->x, backward);
      touch_grad(g, dx, c->addend, backward);
      if (c->mask) touch(&x[index_of(g, masking_value(g, c->mask))], backward);
    }
  }
}

static int tensor_block(Graph *g, const char *name, const Tensor *t, Life life) {
  graph_memory(g, name, tensor_bytes(t), NULL);
  g->blocks[g->num_blocks - 1].first = life.first;
  g->blocks[g->num_blocks - 1].last = life.last;
  return g->num_blocks - 1;
}

static void plan_memory(Graph *g) {
  Life *x = xcalloc((size_t)g->values, sizeof *x), *dx = xcalloc((size_t)g->values, sizeof *dx);
  find_lifetimes(g, x, dx);
  for (int i = 0; i < g->values; i++) {
    Value *v = g->value[i];
    if (v->keep) x[i].last = INT32_MAX;
    if (x[i].last >= 0) v->block = tensor_block(g, v->name, &v->x, x[i]);
    if (dx[i].last >= 0) v->grad_block = tensor_block(g, graph_name(g, "d(%s)", v->name), &v->dx, dx[i]);
  }
  free(x);
  free(dx);
  g->bytes = arena_plan(g->blocks, g->num_blocks);
}

void graph_poison(Graph *g) {
  g->poison = true;
  g->bytes = 0;
  for (int i = 0; i < g->num_blocks; i++) { // nothing is shared: a late read must find NaN, not another block's values
    ArenaBlock *b = &g->blocks[i];
    b->bytes += POISON_GUARD;
    b->offset = g->bytes;
    g->bytes += (b->bytes + POISON_GUARD - 1) / POISON_GUARD * POISON_GUARD;
  }
}

void graph_plan(Graph *g) {
  if (g->training) find_flow(g), resolve_gradients(g);
  plan_memory(g);
}

void graph_measure(Graph *g) {
  Graph quiet = *g;
  quiet.timing = quiet.poison = false;
  g->dev->measuring = true;
  graph_forward(&quiet);
  if (g->training) graph_backward(&quiet);
  g->dev->measuring = false;
}

void graph_bind(Graph *g, void *arena) {
  g->arena = arena;
  for (int i = 0; i < g->num_blocks; i++)
    if (g->owners[i]) memcpy(g->owners[i], &(void *){g->arena + g->blocks[i].offset}, sizeof(void *));
  for (int i = 0; i < g->values; i++) {
    Value *v = g->value[i];
    if (v->block >= 0) v->x.data = g->arena + g->blocks[v->block].offset;
    int grad = grad_owner(v)->grad_block;
    v->dx.data = grad >= 0 ? g->arena + g->blocks[grad].offset : NULL;
    if (v->count) v->x.count = v->dx.count = *v->count;
  }
}
