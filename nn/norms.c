// Norms as nodes: batch norm, over ranks too, and group norm, and either where it pools its output.
#include "nn/layers.h"

// Inputs: x, then the addend, if there is one.
enum { NORM_STATS, NORM_PARTS };     // indices of what it saves; the second is for batch norm over ranks
enum { NORM_ARGMAX = 1, NORM_TAPS }; // or these for one that pools its output

static PoolArgmax argmax_of(const Node *n) { return (PoolArgmax){n->save[NORM_ARGMAX]->x, n->save[NORM_TAPS]->x.data}; }

// Batch norm over ranks. Each has three numbers of every channel for the others: they meet in the parts [world, 3, c],
// where this rank's stand at its place.
static bool over_ranks(const Node *n) { return n->saves > NORM_PARTS && !NODE_ATTR(n, NormLayer)->pool.size; }

static void *own_part(const Graph *g, const Node *n) {
  const Tensor *parts = &n->save[NORM_PARTS]->x;
  return (char *)parts->data + (size_t)group_rank(g->ranks) * (size_t)parts->c * dtype_size(parts->dtype);
}

// The parts of all; NULL while measuring, when there is no memory.
static const void *gather_parts(const Graph *g, const Node *n) {
  const Tensor *parts = &n->save[NORM_PARTS]->x;
  g->ranks->all_gather(g->ranks, g->dev, own_part(g, n), parts->data, (size_t)parts->c, parts->dtype);
  return parts->data;
}

static void forward_over_ranks(Graph *g, Node *n, const Dest *y) {
  const NormLayer *l = NODE_ATTR(n, NormLayer);
  const Tensor *x = &n->in[0].v->x;
  g->dev->ops->batch_norm_moments(g->dev, x, own_part(g, n));
  g->dev->ops->batch_norm_forward_merged(g->dev, l->eps, l->momentum, group_world(g->ranks), gather_parts(g, n), x,
                                         n->use[NORM_GAMMA].p->master.data, n->use[NORM_BETA].p->master.data,
                                         n->use[NORM_MEAN].p->master.data, n->use[NORM_VAR].p->master.data,
                                         n->save[NORM_STATS]->x.data, y);
}

static void backward_over_ranks(Graph *g, Node *n, const Dest *dx) {
  const Tensor *x = &n->in[0].v->x, *dy = &n->out[0]->dx;
  const ParamUse *gamma = &n->use[NORM_GAMMA];
  const void *stats = n->save[NORM_STATS]->x.data;
  g->dev->ops->batch_norm_sums(g->dev, x, dy, stats, own_part(g, n), gamma->p->grad.data,
                               n->use[NORM_BETA].p->grad.data, gamma->accumulate);
  g->dev->ops->batch_norm_backward_merged(g->dev, group_world(g->ranks), gather_parts(g, n), x, dy,
                                          gamma->p->master.data, stats, dx);
}

static void norm_forward(Graph *g, Node *n) {
  const NormLayer *l = NODE_ATTR(n, NormLayer);
  const Tensor *x = &n->in[0].v->x;
  const void *gamma = n->use[NORM_GAMMA].p->master.data, *beta = n->use[NORM_BETA].p->master.data;
  void *stats = n->save[NORM_STATS]->x.data;
  Dest y = value_dest(n->out[0]);
  y.relu = l->relu;
  y.addend = l->addend ? &n->in[1].v->x : NULL;
  PoolArgmax argmax;
  if (l->pool.size) {
    argmax = argmax_of(n);
    y.pool = &l->pool;
    y.argmax = &argmax;
  }
  if (over_ranks(n))
    forward_over_ranks(g, n, &y);
  else if (n->asides && !l->batch)
    g->dev->ops->group_norm_forward_merged(g->dev, l->groups, l->eps, n->aside[0]->x.data, x, gamma, beta, stats, &y);
  else if (n->asides)
    g->dev->ops->batch_norm_forward_merged(g->dev, l->eps, l->momentum, n->aside[0]->x.n, n->aside[0]->x.data, x, gamma,
                                           beta, n->use[NORM_MEAN].p->master.data, n->use[NORM_VAR].p->master.data,
                                           stats, &y);
  else if (l->batch && !g->training)
    g->dev->ops->batch_norm_inference(g->dev, l->eps, x, gamma, beta, n->use[NORM_MEAN].p->master.data,
                                      n->use[NORM_VAR].p->master.data, stats, &y);
  else if (l->batch)
    g->dev->ops->batch_norm_forward(g->dev, l->eps, l->momentum, x, gamma, beta, n->use[NORM_MEAN].p->master.data,
                                    n->use[NORM_VAR].p->master.data, stats, &y);
  else
    g->dev->ops->group_norm_forward(g->dev, l->groups, l->eps, x, gamma, beta, stats, &y);
}

static void norm_backward(Graph *g, Node *n) {
  const NormLayer *l = NODE_ATTR(n, NormLayer);
  const Tensor *x = &n->in[0].v->x, *dy = &n->out[0]->dx;
  const ParamUse *gamma = &n->use[NORM_GAMMA], *beta = &n->use[NORM_BETA];
  const void *stats = n->save[NORM_STATS]->x.data;
  void *dgamma = gamma->p->grad.data, *dbeta = beta->p->grad.data;
  Dest dx = node_dest(n, 0);
  CHECK(gamma->accumulate == beta->accumulate); // the ops have one flag for both
  if (over_ranks(n))
    backward_over_ranks(g, n, &dx);
  else if (l->batch)
    g->dev->ops->batch_norm_backward(g->dev, x, dy, gamma->p->master.data, stats, &dx, dgamma, dbeta,
                                     gamma->accumulate);
  else
    g->dev->ops->group_norm_backward(g->dev, l->groups, x, dy, gamma->p->master.data, stats, &dx, dgamma, dbeta,
                                     gamma->accumulate);
}

static const NodeType norm_node = {.name = "norm",
                                   .attr_size = sizeof(NormLayer),
                                   .forward = norm_forward,
                                   .backward = norm_backward,
                                   .reads_in = true,
                                   .slices = true};

static void norm_pool_backward(Graph *g, Node *n) {
  const ParamUse *gamma = &n->use[NORM_GAMMA], *beta = &n->use[NORM_BETA];
  const PoolArgmax argmax = argmax_of(n);
  const Dest dx = node_dest(n, 0);
  const NormLayer *l = NODE_ATTR(n, NormLayer);
  CHECK(gamma->accumulate == beta->accumulate);
  g->dev->ops->norm_pool_backward(g->dev, l->batch ? 0 : l->groups, &l->pool, &n->in[0].v->x, &argmax, &n->out[0]->dx,
                                  gamma->p->master.data, n->save[NORM_STATS]->x.data, &dx, gamma->p->grad.data,
                                  beta->p->grad.data, gamma->accumulate);
}

static const NodeType norm_pool_node = {.name = "norm_pool",
                                        .attr_size = sizeof(NormLayer),
                                        .forward = norm_forward,
                                        .backward = norm_pool_backward,
                                        .reads_in = true};

int layer_norm_params(Graph *g, const char *name, int c, const NormLayer *n, Param *p[NORM_PARAMS]) {
  const bool trainable = n->trainable && g->training;
  p[NORM_GAMMA] =
      param_vector(g->params, graph_name(g, "%s.weight", name), PARAM_NORM_SCALE, c, trainable, INIT_ONE, 0);
  p[NORM_BETA] = param_vector(g->params, graph_name(g, "%s.bias", name), PARAM_NORM_SHIFT, c, trainable, INIT_ZERO, 0);
  if (!n->batch) return NORM_AFFINE;
  p[NORM_MEAN] = param_buffer(g->params, graph_name(g, "%s.running_mean", name), c, INIT_ZERO);
  p[NORM_VAR] = param_buffer(g->params, graph_name(g, "%s.running_var", name), c, INIT_ONE);
  for (int i = NORM_MEAN; i <= NORM_VAR && g->training && !n->over_ranks; i++) param_moves(g->params, p[i]);
  return NORM_PARAMS;
}

Tensor layer_norm_stats(const Graph *g, const Tensor *x, const NormLayer *n) {
  return tensor_packed(g->dev->real, n->batch ? x->c : x->n * n->groups, 2);
}

Value *layer_norm(Graph *g, const char *name, Value *x, const NormLayer *l) {
  Node *n = graph_node(g, &norm_node, name);
  Param *p[NORM_PARAMS];
  *NODE_ATTR(n, NormLayer) = *l;
  for (int i = 0, params = layer_norm_params(g, name, x->x.c, l, p); i < params; i++) node_use(n, p[i]);
  node_save(n, graph_value(g, graph_name(g, "stats(%s)", name), layer_norm_stats(g, &x->x, l)));
  if (l->batch && g->training && l->over_ranks && g->ranks) {
    Tensor parts = tensor_packed(g->dev->real, group_world(g->ranks), 3 * x->x.c);
    node_save(n, graph_value(g, graph_name(g, "parts(%s)", name), parts));
  }
  Value *moments = g->training && !over_ranks(n) ? layer_conv_moments(g, x) : NULL;
  if (moments) node_aside(n, moments);
  Value *y = graph_value(g, name, x->x);
  y->relu = l->relu;
  node_in(n, x, FLOW_DENSE);
  if (l->addend) node_in(n, l->addend, FLOW_IDENTITY);
  node_out(n, y);
  return y;
}

Value *layer_norm_pooled(Graph *g, const char *name, Value *x, const Pool *pool, int h, int w) {
  Node *n = graph_writer(g, x);
  if (!n || n->type != &norm_node || pool->size != 3 || pool->stride != 2 || pool->pad > 1) return NULL;
  NormLayer *l = NODE_ATTR(n, NormLayer);
  const bool plain = l->relu && !l->addend && !x->rows && !over_ranks(n);
  if (g->dev->every_value || !g->training || !plain || graph_readers(g, x)) return NULL;
  l->pool = *pool;
  n->type = &norm_pool_node;
  x->name = name;
  x->x = x->dx = tensor(g->act, x->x.n, h, w, x->x.c); // a ReLU's maxima are a ReLU's
  node_save(n, graph_value(g, graph_name(g, "argmax(%s)", name), x->x));
  const Tensor taps = tensor(BF16, x->x.n, h, w, x->x.ldc / 2); // a byte for each element
  node_save(n, graph_value(g, graph_name(g, "taps(%s)", name), taps));
  return x;
}
