#include "engine/reduction.h"
#include <stdlib.h>

const char *const reduce_names[] = {[REDUCE_F32] = "fp32", [REDUCE_BF16] = "bf16", [REDUCE_NONE] = "none", NULL};

// ---- memory -----------------------------------------------------------------------------------------------------

static bool narrows(const Reduction *r) { return r->o.comm && r->o.type == REDUCE_BF16; }

void reduction_init(Reduction *r, const ReductionOptions *o, Device *dev, Params *params) {
  *r = (Reduction){.o = *o, .dev = dev, .params = params};
  dev->granted = MAX(dev->multiprocessors - o->reserved, 1); // for what is measured; walks set it themselves
}

static size_t agreed_bytes(const Reduction *r) { return r->o.comm ? AGREED * dtype_size(r->dev->real) : 0; }
static size_t narrow_bytes(const Reduction *r) { return narrows(r) ? r->params->trainable * dtype_size(BF16) : 0; }

size_t reduction_bytes(const Reduction *r) { return agreed_bytes(r) + narrow_bytes(r); }

bool reduction_allocate(Reduction *r, Err *err) {
  if (!r->o.comm) return true;
  r->agreed = device_alloc(r->dev, agreed_bytes(r));
  if (narrows(r)) r->narrow = device_alloc(r->dev, narrow_bytes(r));
  if (r->agreed && (r->narrow || !narrows(r))) return true;
  return err_memory(err, reduction_bytes(r), "what ranks exchange", "--model");
}

void reduction_free(Reduction *r) {
  if (r->agreed) device_free(r->dev, r->agreed);
  if (r->narrow) device_free(r->dev, r->narrow);
  *r = (Reduction){0};
}

const void *reduction_losses(const Reduction *r, const Network *n, int *count) {
  *count = r->agreed ? AGREED : model_losses(n->model);
  return r->agreed ? r->agreed : n->losses->x.data;
}

// ---- buckets ----------------------------------------------------------------------------------------------------

static void *element(const Reduction *r, void *base, size_t i, DType dtype) {
  (void)r;
  return (char *)base + i * dtype_size(dtype);
}

// Queues the reduction of gradients up to `end`, behind the ops that made them.
static void reduce_to(Reduction *r, size_t end) {
  Device *dev = r->dev;
  const size_t first = r->reduced, n = end - first;
  void *grad = element(r, r->params->grad, first, dev->real);
  r->reduced = end;
  r->buckets++;
  if (n == 0 || r->o.type == REDUCE_NONE) return;
  if (!narrows(r)) {
    device_fork(dev);
    collective_mean(r->o.comm, dev, COMM_BESIDE, grad, n, dev->real);
    return;
  }
  void *narrow = element(r, r->narrow, first, BF16);
  dev->ops->cast(dev, n, grad, dev->real, narrow, BF16);
  device_fork(dev);
  collective_mean(r->o.comm, dev, COMM_BESIDE, narrow, n, BF16);
}

// Losses, what goes with them, and running statistics are known when the forward walk has ended.
static void agree(const Reduction *r, const Network *n) {
  Device *dev = r->dev;
  const Params *p = r->params;
  device_copy(dev, r->agreed, n->losses->x.data, (size_t)model_losses(n->model) * dtype_size(dev->real));
  device_fork(dev);
  collective_mean(r->o.comm, dev, COMM_BESIDE, r->agreed, AGREED, dev->real);
  if (p->moving && r->o.type != REDUCE_NONE)
    collective_mean(r->o.comm, dev, COMM_BESIDE, element(r, p->master, p->trainable, dev->real), p->moving, dev->real);
}

static void begin_walk(Observer *o, Graph *g, Pass pass) {
  const BucketWatch *w = (BucketWatch *)o;
  Reduction *r = w->reduction;
  const bool backward = pass == PASS_BACKWARD;
  (void)g;
  r->dev->granted = MAX(r->dev->multiprocessors - (backward ? r->o.reserved : 0), 1);
  if (!backward || !r->o.comm) return;
  r->reduced = 0;
  r->buckets = 0;
  agree(r, w->network);
}

static void after_node(Observer *o, Graph *g, Node *n, Pass pass) {
  const BucketWatch *w = (BucketWatch *)o;
  Reduction *r = w->reduction;
  (void)g;
  if (pass != PASS_BACKWARD || !r->o.comm) return;
  const double waiting = (double)((w->complete[n->id] - r->reduced) * dtype_size(r->dev->real));
  if (waiting >= 1e6 * r->o.bucket_mb) reduce_to(r, w->complete[n->id]);
}

static void end_walk(Observer *o, Graph *g, Pass pass) {
  const BucketWatch *w = (BucketWatch *)o;
  Reduction *r = w->reduction;
  (void)g;
  if (pass != PASS_BACKWARD) return;
  r->dev->granted = r->dev->multiprocessors;
  if (!r->o.comm) return;
  reduce_to(r, r->params->trainable);
  device_join(r->dev);
  if (narrows(r)) r->dev->ops->cast(r->dev, r->params->trainable, r->narrow, BF16, r->params->grad, r->dev->real);
}

// How many gradients, from the first on, the steps of the backward walk up to this one complete.
static size_t complete_after(const Params *p, int step) {
  size_t n = p->trainable;
  for (int i = p->n - 1; i >= 0; i--) {
    const Param *q = p->list[p->order[i]];
    if (q->trainable && q->last_use > step)
      n = (size_t)((char *)q->grad.data - (char *)p->grad) / dtype_size(p->dev->real);
  }
  return n;
}

void reduction_watch(Reduction *r, BucketWatch *w, Network *n) {
  const Graph *g = &n->graph;
  if (!r->o.comm && !r->o.reserved) return;
  *w = (BucketWatch){
      .observer = {.begin = begin_walk, .after = after_node, .end = end_walk, .queues = true},
      .reduction = r,
      .network = n,
      .complete = xcalloc((size_t)g->nodes, sizeof *w->complete),
  };
  for (int i = 0; i < g->nodes; i++) w->complete[i] = complete_after(r->params, 2 * g->nodes - 1 - i);
  graph_observe(&n->graph, &w->observer);
}

void bucket_watch_free(BucketWatch *w) { free(w->complete); }
