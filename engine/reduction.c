#include "engine/reduction.h"
#include <math.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "nn/layers.h"

const char *const reduce_names[] = {[REDUCE_F32] = "fp32", [REDUCE_BF16] = "bf16", [REDUCE_NONE] = "none", NULL};

enum { NCCL_CTAS = 24 };           // approximately NCCL's default
static const double SUMMED_MB = 8; // of gradients that are summed at a time, where no rank waits for them

// ---- memory -----------------------------------------------------------------------------------------------------

static bool narrows(const Reduction *r) { return r->o.comm && r->o.type == REDUCE_BF16; }

static int expected_ctas(const ReductionOptions *o) { return o->ctas ? o->ctas : NCCL_CTAS; }

void reduction_init(Reduction *r, const ReductionOptions *o, Device *dev, Params *params) {
  *r = (Reduction){.o = *o, .dev = dev, .params = params};
  r->reserved = o->reserve >= 0 ? o->reserve : o->comm ? expected_ctas(o) : 0;
}

// Sets whether kernels of the backward walk leave multiprocessors to collectives from here on.
static void reserve(const Reduction *r, bool some) {
  r->dev->granted = MAX(r->dev->multiprocessors - (some ? r->reserved : 0), 1);
}

static size_t narrow_bytes(const Reduction *r) { return narrows(r) ? r->params->trainable * dtype_size(BF16) : 0; }

size_t reduction_bytes(const Reduction *r) { return narrow_bytes(r); }

bool reduction_allocate(Reduction *r, Err *err) {
  _Static_assert((int)AGREED <= (int)PARAM_ALIGN, "what is agreed on stands in front of the gradients");
  const size_t sums = (size_t)MAX(grad_parts(r->params), 1) * sizeof *r->sums;
  if (r->o.comm) r->agreed = r->params->agreed;
  if (!(r->sums = device_alloc(r->dev, sums))) return err_memory(err, sums, "the norm of the gradients", NULL);
  if (!narrows(r) || (r->narrow = device_alloc(r->dev, narrow_bytes(r)))) return true;
  return err_memory(err, narrow_bytes(r), "gradients being exchanged", "--model");
}

void reduction_free(Reduction *r) {
  if (r->narrow) device_free(r->dev, r->narrow);
  if (r->sums) device_free(r->dev, r->sums);
  free(r->told);
  *r = (Reduction){0};
}

const void *reduction_losses(const Reduction *r, const Network *n, int *count) {
  *count = r->agreed ? AGREED : model_losses(n->model);
  return r->agreed ? r->agreed : n->losses->x.data;
}

// ---- buckets ----------------------------------------------------------------------------------------------------

// Whether gradients before `end` are to be reduced, or summed, before there are more.
static bool bucket_is_full(const Reduction *r, size_t end, size_t reduced) {
  size_t gradients = end - reduced;
  for (int i = 0; i < r->num_told; i++) {
    const size_t first = MAX((size_t)r->told[i].first * GRAD_PART, reduced);
    const size_t until = MIN((size_t)r->told[i].end * GRAD_PART, end);
    if (first < until) gradients -= until - first;
  }
  return (double)(gradients * dtype_size(r->dev->real)) >= 1e6 * (r->o.comm ? r->o.bucket_mb : SUMMED_MB);
}

static void *element(void *base, size_t i, DType dtype) { return (char *)base + i * dtype_size(dtype); }

// Queues a mean after the ops that produced p, concurrently with those that follow.
static void mean_on_side_stream(const Reduction *r, void *p, size_t n, DType dtype) {
  device_fork(r->dev);
  collective_mean(r->o.comm, r->dev, COMM_SIDE_STREAM, p, n, dtype);
}

// Queues the sums of squares of gradients before `end`, as far as whole parts are complete and nobody has told them.
static void sum_to(Reduction *r, size_t end) {
  const Params *p = r->params;
  const int parts = end == p->trainable ? grad_parts(p) : (int)(end / GRAD_PART);
  for (int i = 0; i <= r->num_told && r->summed < parts; i++) {
    const PartRange next = i < r->num_told ? r->told[i] : (PartRange){parts, parts};
    const int until = MIN(next.first, parts);
    if (r->summed < until) r->dev->ops->grad_sums(r->dev, p->trainable, p->grad, r->summed, until, r->sums);
    r->summed = MAX(r->summed, MIN(next.end, parts));
  }
}

void reduction_sum_in_wgrad(Reduction *r, Graph *g) {
  const Params *p = r->params;
  if (r->o.comm) return;
  for (int i = 0; i < g->nodes; i++) {
    int sums;
    Param *filter = layer_conv_squares(g, g->node[i], &sums);
    if (!filter) continue;
    const size_t first = (size_t)((char *)filter->grad.data - (char *)p->grad) / dtype_size(r->dev->real);
    const size_t end = first + tensor_elements(&filter->grad);
    const PartRange parts = {(int)((first + GRAD_PART - 1) / GRAD_PART), (int)(end / GRAD_PART)};
    if (parts.end - parts.first < sums) continue;
    filter->squares = (GradSquares){.sums = r->sums + parts.first,
                                    .first = (int)((size_t)parts.first * GRAD_PART - first),
                                    .end = (int)((size_t)parts.end * GRAD_PART - first)};
    int at = r->num_told++;
    r->told = xrealloc(r->told, (size_t)r->num_told * sizeof *r->told);
    for (; at > 0 && r->told[at - 1].first > parts.first; at--) r->told[at] = r->told[at - 1];
    r->told[at] = parts;
  }
  // Parts of these that have no sum of their own add nothing.
  const size_t bytes = (size_t)MAX(grad_parts(p), 1) * sizeof *r->sums;
  GradSum *nothing = xmalloc(bytes);
  for (int i = 0; i < MAX(grad_parts(p), 1); i++) nothing[i] = (GradSum){.finite = true};
  device_upload(r->dev, r->sums, nothing, bytes);
  free(nothing);
}

// The same of gradients from `first` on, behind their reduction.
static void sum_reduced(Reduction *r, size_t first, size_t end) {
  Device *dev = r->dev;
  void *gradients = element(r->params->grad, first, dev->real);
  const Queue queue = dev->queue;
  if (r->o.type != REDUCE_NONE) device_queue(dev, QUEUE_SIDE);
  if (narrows(r) && end > first)
    dev->ops->cast(dev, end - first, element(r->narrow, first, BF16), BF16, gradients, dev->real);
  sum_to(r, end);
  device_queue(dev, queue);
}

// Queues the reduction of gradients up to `end`. The first one includes the losses and the other AGREED_… values, which
// are stored before the gradients.
static void reduce_to(Reduction *r, size_t end) {
  Device *dev = r->dev;
  const Params *p = r->params;
  const size_t first = r->reduced, n = end - first;
  if (r->o.type == REDUCE_F32) {
    if (first == 0)
      mean_on_side_stream(r, p->agreed, PARAM_ALIGN + n, dev->real);
    else if (n)
      mean_on_side_stream(r, element(p->grad, first, dev->real), n, dev->real);
  } else if (first == 0) {
    mean_on_side_stream(r, p->agreed, PARAM_ALIGN, dev->real);
  }
  if (narrows(r) && n) {
    void *narrow = element(r->narrow, first, BF16);
    dev->ops->cast(dev, n, element(p->grad, first, dev->real), dev->real, narrow, BF16);
    mean_on_side_stream(r, narrow, n, BF16);
  }
  sum_reduced(r, first, end);
  r->buckets++;
}

// Gradients before `end` are complete, or will be by the ops that are queued.
static void finish_to(Reduction *r, Graph *g, size_t end) {
  const bool entered = graph_gradients_begin(g);
  if (r->o.comm)
    reduce_to(r, end);
  else
    sum_to(r, end);
  r->reduced = end;
  if (entered) graph_gradients_end(g);
}

// Starts with the losses and running statistics, which are known at the end of the forward walk.
static void begin_reduction(Reduction *r, const Network *n) {
  Device *dev = r->dev;
  const Params *p = r->params;
  r->begun = true;
  r->buckets = 0;
  device_copy(dev, r->agreed, n->losses->x.data, (size_t)model_losses(n->model) * dtype_size(dev->real));
  if (p->moving && r->o.type != REDUCE_NONE)
    mean_on_side_stream(r, element(p->master, p->trainable, dev->real), p->moving, dev->real);
}

static void begin_walk(Observer *o, Graph *g, Pass pass) {
  const GradientWatch *w = (GradientWatch *)o;
  Reduction *r = w->reduction;
  (void)g;
  if (pass == PASS_FORWARD) {
    r->reduced = 0;
    r->summed = 0;
    r->begun = !r->o.comm;
  } else if (r->o.comm) {
    begin_reduction(r, w->network);
  }
}

static void before_node(Observer *o, Graph *g, Node *n, Pass pass) {
  const GradientWatch *w = (GradientWatch *)o;
  (void)g;
  reserve(w->reduction, pass == PASS_BACKWARD && w->overlaps[n->id]);
}

static void after_node(Observer *o, Graph *g, Node *n, Pass pass) {
  const GradientWatch *w = (GradientWatch *)o;
  Reduction *r = w->reduction;
  if (pass == PASS_BACKWARD && r->begun && bucket_is_full(r, w->complete[n->id], r->reduced))
    finish_to(r, g, w->complete[n->id]);
}

static void end_walk(Observer *o, Graph *g, Pass pass) {
  const GradientWatch *w = (GradientWatch *)o;
  Reduction *r = w->reduction;
  reserve(r, false);
  if (pass == PASS_FORWARD) return;
  finish_to(r, g, r->params->trainable);
  r->begun = false;
  if (r->o.comm) device_join(r->dev);
}

// How many gradients, from the first on, are complete after this step of the walk.
static size_t complete_after(const Params *p, int step) {
  size_t n = p->trainable;
  for (int i = p->n - 1; i >= 0; i--) {
    const Param *q = p->list[p->order[i]];
    if (q->trainable && q->last_use > step)
      n = (size_t)((char *)q->grad.data - (char *)p->grad) / dtype_size(p->dev->real);
  }
  return n;
}

// ---- overlap of reductions and nodes ----------------------------------------------------------------------------

// Rates for estimating which nodes overlap with reductions: those of an H200 in 16 bits, and of NCCL over NVLink per
// CTA (results/scaling-h200.jsonl). If they are wrong, kernels wait for multiprocessors, or leave some idle.
static const double NODE_FLOPS = 5e14, NODE_BYTES = 2.5e12, NODE_SECONDS = 4e-6;
static const double CTA_BYTES = 16e9, REDUCE_SECONDS = 40e-6;

static void add_value(void *sum, const Value *v) {
  if (v->type == VALUE_TENSOR) *(double *)sum += (double)tensor_bytes(&v->x);
}
static void add_gradient(void *sum, const Value *v) { *(double *)sum += (double)tensor_bytes(&v->dx); }

static double backward_seconds(const Node *n) {
  double bytes = 0;
  node_touches(n, PASS_BACKWARD, &(Touch){add_value, add_gradient, &bytes});
  const double flops = n->type->flops ? n->type->flops(n, PASS_BACKWARD) : 0;
  return NODE_SECONDS + fmax(flops / NODE_FLOPS, bytes / NODE_BYTES);
}

// Time of a ring all-reduce: every rank sends and receives all but its own part, twice.
static double reduce_seconds(const Reduction *r, size_t gradients) {
  const double world = comm_world(r->o.comm), size = r->o.type == REDUCE_BF16 ? 2 : 4;
  const double bytes = (double)gradients * size * 2 * (world - 1) / world;
  return REDUCE_SECONDS + bytes / (CTA_BYTES * expected_ctas(&r->o));
}

// Simulates the part of the walk after the losses, and the reductions that it starts.
static void find_overlaps(const Reduction *r, GradientWatch *w, const Graph *g) {
  double now = 0, busy_until = 0;
  size_t reduced = 0;
  for (int i = 0; i < g->steps; i++) {
    const Node *n = g->walk[i].node;
    if (g->walk[i].pass == PASS_FORWARD) continue;
    w->overlaps[n->id] = r->o.reserve >= 0 || busy_until > now;
    if (i < g->forward_steps) continue;
    now += backward_seconds(n);
    if (!bucket_is_full(r, w->complete[n->id], reduced)) continue;
    busy_until = fmax(busy_until, now) + reduce_seconds(r, w->complete[n->id] - reduced);
    reduced = w->complete[n->id];
  }
}

void reduction_measure(const Reduction *r, Graph *g) {
  reserve(r, false);
  graph_measure(g);
  if (!g->training || !r->reserved) return;
  reserve(r, true);
  graph_measure(g);
  reserve(r, false);
}

void reduction_watch(Reduction *r, GradientWatch *w, Network *n) {
  const Graph *g = &n->graph;
  *w = (GradientWatch){
      .observer = {.begin = begin_walk, .before = before_node, .after = after_node, .end = end_walk, .queues = true},
      .reduction = r,
      .network = n,
      .complete = xcalloc((size_t)g->nodes, sizeof *w->complete),
      .overlaps = xcalloc((size_t)g->nodes, sizeof *w->overlaps),
  };
  for (int i = 0; i < g->nodes; i++) w->complete[i] = complete_after(r->params, g->node[i]->step[PASS_BACKWARD]);
  find_overlaps(r, w, g);
  graph_observe(&n->graph, &w->observer);
}

void gradient_watch_free(GradientWatch *w) {
  free(w->complete);
  free(w->overlaps);
}
