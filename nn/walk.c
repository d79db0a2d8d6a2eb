// The walk: in which order nodes run forward and backward, which steps run beside others, and running it.
//
// Order: nodes run forward as they are listed, and backward as soon as their outputs' gradients are complete: a loss at
// once, then what only it depends on. So the RPN has run backward before proposals are looked at.
//
// Beside: what small kernels do (NodeType.beside) has a queue of its own on a GPU, in which steps stay in order. From
// what nodes declare follows for which step of the other queue a step has to wait, and so at whose time one beside may
// run: between the last step that it depends on and the first that depends on it. For so long its memory is its own.
// Products stay on their multiprocessors until their tiles are done: beside steps with NodeType.lent they take fewer.
//
// Gradients of parameters (NodeType.gradients), for which the update alone waits, have a third queue. It fills what the
// products of the walk leave idle, mostly when their last tiles end. A step that splits so may not be ahead of these by
// more than another such step, which bounds the memory that they keep.
//
// All is fixed with the plan, and no sum's order depends on it: the same bits, whichever queue is ahead. A watched walk
// runs step by step in one queue.
#include <stdlib.h>
#include "base/alloc.h"
#include "nn/graph.h"

// ---- order ----------------------------------------------------------------------------------------------------------

static void add_step(Graph *g, Node *n, Pass pass) {
  n->step[pass] = g->steps;
  g->walk[g->steps] = (Step){.node = n, .pass = pass, .after = NO_STEP, .first = g->steps, .last = g->steps};
  g->steps++;
}

// left: contributions that are missing, by Value.id.
static bool runs_now(const Node *n, const int *left) {
  if (!n->runs_backward || n->step[PASS_BACKWARD] >= 0) return false;
  for (int i = 0; i < n->outs && !n->type->source; i++)
    if (left[n->out[i]->id]) return false;
  return true;
}

// Of the nodes up to `last`, which have run forward.
static void add_backward(Graph *g, int last, int *left) {
  for (int i = last; i >= 0; i--) {
    Node *n = g->node[i];
    if (!runs_now(n, left)) continue;
    add_step(g, n, PASS_BACKWARD);
    for (int j = 0; j < n->ins; j++)
      if (n->in[j].flow != FLOW_NONE && n->in[j].v->needs_grad) left[n->in[j].v->id]--;
  }
}

void walk_order(Graph *g) {
  int *left = xcalloc((size_t)g->values + 1, sizeof *left);
  g->walk = xcalloc(2 * (size_t)g->nodes + 1, sizeof *g->walk);
  for (int i = 0; i < g->values; i++) left[i] = g->value[i]->contributions;
  for (int i = 0; i < g->nodes; i++) g->node[i]->step[PASS_FORWARD] = g->node[i]->step[PASS_BACKWARD] = -1;
  for (int i = 0; i < g->nodes; i++) {
    add_step(g, g->node[i], PASS_FORWARD);
    g->forward_steps = g->steps;
    if (g->training && g->node[i]->type->source) add_backward(g, i, left);
  }
  for (int i = 0; i < g->nodes; i++) CHECK(!g->node[i]->runs_backward || g->node[i]->step[PASS_BACKWARD] >= 0);
  free(left);
}

// ---- beside ---------------------------------------------------------------------------------------------------------

static bool writes(const Node *n, const Value *v) {
  bool any = false;
  for (int i = 0; i < n->outs; i++) any |= n->out[i] == v || n->out[i]->whole == v;
  for (int i = 0; i < n->saves; i++) any |= n->save[i] == v;
  for (int i = 0; i < n->asides; i++) any |= n->aside[i] == v;
  return any;
}

typedef struct Conflict {
  const Node *beside;
  const Step *other;
  bool found; // one of them writes what the other reads or writes, too
} Conflict;

static void look_at_value(void *context, const Value *v) {
  Conflict *c = context;
  const Step *s = c->other;
  c->found |=
      node_has(s->node, s->pass, v) && (writes(c->beside, v) || (s->pass == PASS_FORWARD && writes(s->node, v)));
}

static void look_at_gradient(void *context, const Value *owner) {
  (void)context;
  (void)owner;
  CHECK(!"a step beside others has no gradient");
}

// Whether the later of two steps has to wait for the other.
static bool depend(const Node *beside, const Step *s) {
  Conflict c = {beside, s, false};
  node_touches(beside, PASS_FORWARD, &(Touch){look_at_value, look_at_gradient, &c});
  return c.found;
}

// The last step before i, in the other queue, that i depends on.
static int last_needed(const Graph *g, int i) {
  const Step *s = &g->walk[i];
  for (int j = i - 1; j >= 0; j--) {
    const Step *other = &g->walk[j];
    if (other->beside != s->beside && depend((s->beside ? s : other)->node, s->beside ? other : s)) return j;
  }
  return NO_STEP;
}

// A queue is in order: what an earlier step of it has waited for needs no second wait.
static void find_waits(Graph *g) {
  int waited[2] = {NO_STEP, NO_STEP};
  bool begun = false; // the queue beside
  g->last_beside = NO_STEP;
  for (int i = 0; i < g->steps; i++) {
    Step *s = &g->walk[i];
    const int needed = last_needed(g, i);
    if (needed > waited[s->beside]) {
      s->after = waited[s->beside] = needed;
      g->walk[needed].awaited = true;
    } else if (s->beside && !begun) {
      s->after = WALK_BEGIN;
    }
    begun |= s->beside;
    if (s->beside) g->last_beside = i;
  }
  if (g->last_beside > waited[false])
    g->walk[g->last_beside].awaited = true; // by the end of graph_forward
  else
    g->last_beside = NO_STEP;
}

// When steps beside others may run: they, too, are in order.
static void find_times(Graph *g) {
  int first = 0, last = g->forward_steps - 1; // what nobody waits for is over by then
  for (int i = 0; i < g->steps; i++) {
    Step *s = &g->walk[i];
    if (!s->beside) continue;
    if (s->after >= 0) first = s->after + 1;
    s->first = first;
  }
  for (int i = g->steps - 1; i >= 0; i--) {
    Step *s = &g->walk[i];
    if (s->beside) s->last = last;
    for (int j = i + 1; j < g->steps && s->beside && s->awaited; j++)
      if (g->walk[j].after == i) s->last = last = MIN(last, j - 1);
  }
}

static void find_lent(Graph *g) {
  for (int i = 0; i < g->steps; i++)
    for (int j = 0; j < g->steps && !g->walk[i].beside; j++) {
      const Step *s = &g->walk[j];
      if (s->beside && s->first <= i && i <= s->last) g->walk[i].lent = MAX(g->walk[i].lent, s->node->type->lent);
    }
}

static bool trains(const Node *n) {
  bool any = false;
  for (int i = 0; i < n->uses; i++) any |= n->use[i].p && n->use[i].p->trainable;
  return any;
}

// Not beside steps with NodeType.lent: the multiprocessors are those steps'. A step beside has no means to wait for the
// gradients.
static void find_splits(Graph *g) {
  Step *before = NULL;
  for (int i = 0; i < g->steps; i++) {
    Step *s = &g->walk[i];
    for (int j = 0; j < i && s->beside; j++) CHECK(!g->walk[j].splits || !depend(s->node, &g->walk[j]));
    s->splits = s->pass == PASS_BACKWARD && s->node->type->gradients && trains(s->node) && !s->lent;
    if (!s->splits) continue;
    if (before) before->last = i;
    before = s;
  }
  if (before) before->last = g->steps - 1;
}

void walk_beside(Graph *g) {
  for (int i = 0; i < g->steps; i++) {
    const Node *n = g->walk[i].node;
    CHECK(!n->type->beside || !(n->type->backward || n->uses || n->saves || n->asides));
    g->walk[i].beside = n->type->beside;
  }
  find_waits(g);
  find_times(g);
  find_lent(g);
  find_splits(g);
}

// ---- observers --------------------------------------------------------------------------------------------------

void graph_observe(Graph *g, Observer *o) {
  Observer **at = &g->observers;
  while (*at) at = &(*at)->next;
  o->next = NULL;
  *at = o;
}

void graph_unobserve(Graph *g, Observer *o) {
  for (Observer **at = &g->observers; *at; at = &(*at)->next)
    if (*at == o) {
      *at = o->next;
      return;
    }
}

bool graph_watched(const Graph *g) {
  for (const Observer *o = g->observers; o; o = o->next)
    if (!o->queues) return true;
  return false;
}

static void walk_begins(Graph *g, Pass pass) {
  for (Observer *o = g->observers; o; o = o->next)
    if (o->begin) o->begin(o, g, pass);
}

static void walk_ends(Graph *g, Pass pass) {
  for (Observer *o = g->observers; o; o = o->next)
    if (o->end) o->end(o, g, pass);
}

// ---- running ----------------------------------------------------------------------------------------------------

Dest value_dest(const Value *v) { return (Dest){.t = v->x}; }

static const Tensor *gradient_of(const Value *v) { return v ? &v->dx : NULL; }
static const Tensor *activation_of(const Value *v) { return v ? &v->x : NULL; }

Dest node_dest(const Node *n, int input) {
  const Input *in = &n->in[input];
  CHECK(in->wanted);
  return (Dest){
      .t = in->v->dx, .accumulate = in->accumulate, .addend = gradient_of(in->addend), .mask = activation_of(in->mask)};
}

static void run_backward(Graph *g, Node *n) {
  n->type->backward(g, n);
  for (int i = 0; i < n->copies; i++) {
    const GradCopy *c = &n->copy[i];
    Dest d = {
        .t = c->to->dx, .accumulate = c->accumulate, .addend = gradient_of(c->addend), .mask = activation_of(c->mask)};
    g->dev->ops->copy(g->dev, gradient_of(c->from), &d);
  }
}

static void recompute(Graph *g, const Node *n) {
  if (n->recompute) n->recompute->type->forward(g, n->recompute);
}

static void call_before(Graph *g, const Step *s) {
  for (Observer *o = g->observers; o; o = o->next)
    if (o->before) o->before(o, g, s->node, s->pass);
}

static void call_after(Graph *g, const Step *s) {
  for (Observer *o = g->observers; o; o = o->next)
    if (o->after) o->after(o, g, s->node, s->pass);
}

void graph_run_step(Graph *g, int step) {
  const Step *s = &g->walk[step];
  Node *n = s->node;
  call_before(g, s);
  if (s->pass == PASS_FORWARD) {
    n->type->forward(g, n);
  } else {
    recompute(g, n);
    if (n->type->gradients) n->type->gradients(g, n);
    run_backward(g, n);
  }
  call_after(g, s);
}

void graph_run_backward(Graph *g, int step) {
  const Step *s = &g->walk[step];
  call_before(g, s);
  run_backward(g, s->node);
  for (Observer *o = g->observers; o; o = o->next)
    if (o->between) o->between(o, g, s->node, s->pass);
}

void graph_run_gradients(Graph *g, int step) {
  const Step *s = &g->walk[step];
  s->node->type->gradients(g, s->node);
  call_after(g, s);
}

static void *open_mark(Graph *g, int i) {
  if (!g->mark[i]) g->mark[i] = device_mark_open(g->dev);
  return g->mark[i];
}
static void *mark_of(Graph *g, int step) { return open_mark(g, step == WALK_BEGIN ? g->steps + MARK_BEGIN : step); }
static void *mark_ops(Graph *g) { return open_mark(g, g->steps + MARK_OPS); }
static void *mark_gradients(Graph *g) { return open_mark(g, g->steps + MARK_GRADIENTS); }

// QUEUE_OPS waits for QUEUE_GRADIENTS.
static void follow_gradients(Graph *g) {
  if (g->gradients_run) device_mark_follow(g->dev, mark_gradients(g));
  g->gradients_run = false;
}

// From mark_ops on.
static void enter_gradients(Graph *g) {
  device_queue(g->dev, QUEUE_GRADIENTS);
  device_mark_follow(g->dev, mark_ops(g));
}

static void leave_gradients(Graph *g) {
  device_mark_set(g->dev, mark_gradients(g));
  device_queue(g->dev, QUEUE_OPS);
  g->gradients_run = true;
}

static void run_split(Graph *g, int i) {
  recompute(g, g->walk[i].node);
  device_mark_set(g->dev, mark_ops(g));
  g->dev->contended = true; // until the walk ends
  graph_run_backward(g, i);
  follow_gradients(g);
  enter_gradients(g);
  graph_run_gradients(g, i);
  leave_gradients(g);
}

static void run_in_queues(Graph *g, int i) {
  const Step *s = &g->walk[i];
  Device *dev = g->dev;
  if (s->beside) device_queue(dev, QUEUE_BESIDE);
  if (s->after != NO_STEP) device_mark_follow(dev, mark_of(g, s->after));
  dev->lent = s->lent;
  if (s->splits) {
    run_split(g, i);
  } else {
    if (s->pass == PASS_BACKWARD && s->node->type->gradients) follow_gradients(g); // may have begun the same sums
    graph_run_step(g, i);
  }
  dev->lent = 0;
  if (s->awaited) device_mark_set(dev, mark_of(g, i));
  if (s->beside) device_queue(dev, QUEUE_OPS);
}

// Whether the device is to use all queues. Only queued work is measured and watched as it is.
static bool uses_queues(const Graph *g) {
  return g->training && device_has_queues(g->dev) && !g->dev->measuring && !graph_watched(g);
}

bool graph_gradients_begin(Graph *g) {
  if (!uses_queues(g) || g->dev->queue == QUEUE_GRADIENTS) return false;
  device_mark_set(g->dev, mark_ops(g));
  enter_gradients(g);
  return true;
}

void graph_gradients_end(Graph *g) { leave_gradients(g); }

static void run_steps(Graph *g, int begin, int end) {
  const bool queues = uses_queues(g);
  if (queues && !g->mark) g->mark = xcalloc((size_t)g->steps + MARKS, sizeof *g->mark);
  if (queues && begin == 0) device_mark_set(g->dev, mark_of(g, WALK_BEGIN));
  for (int i = begin; i < end; i++)
    if (queues)
      run_in_queues(g, i);
    else
      graph_run_step(g, i);
}

void graph_forward(Graph *g) {
  walk_begins(g, PASS_FORWARD);
  run_steps(g, 0, g->forward_steps);
  if (uses_queues(g) && g->last_beside != NO_STEP) device_mark_follow(g->dev, mark_of(g, g->last_beside));
  walk_ends(g, PASS_FORWARD);
}

void graph_backward(Graph *g) {
  walk_begins(g, PASS_BACKWARD);
  run_steps(g, g->forward_steps, g->steps);
  walk_ends(g, PASS_BACKWARD);
  follow_gradients(g);
  g->dev->contended = false;
}

void graph_measure(Graph *g) {
  Graph unobserved = *g;
  unobserved.observers = NULL;
  g->dev->measuring = true;
  for (int i = 0; i < g->steps; i++) {
    const Step *s = &g->walk[i];
    device_queue(g->dev, s->beside ? QUEUE_BESIDE : QUEUE_OPS); // each has a workspace of its own
    graph_run_step(&unobserved, i);
    device_queue(g->dev, QUEUE_GRADIENTS);
    if (s->splits) graph_run_gradients(&unobserved, i);
  }
  device_queue(g->dev, QUEUE_OPS);
  g->dev->measuring = false;
}
