#include "nn/layers.h"

// ---- convolution ------------------------------------------------------------------------------------------------

typedef struct ConvAttr {
  Conv conv;
  int pairs;
  bool relu, addend, folded;
} ConvAttr;

static const void *conv_bias(const Node *n) {
  if (NODE_ATTR(n, ConvAttr)->folded) return n->filter->fold->shift;
  return n->bias ? n->bias->master.data : NULL;
}

static const Tensor *conv_filter(const Node *n) {
  return NODE_ATTR(n, ConvAttr)->folded ? &n->filter->folded : &n->filter->shadow;
}

static void conv_inputs(const Node *n, Tensor *x) {
  for (int i = 0; i < NODE_ATTR(n, ConvAttr)->pairs; i++) x[i] = n->in[i].v->x;
}

static void conv_output_grads(const Node *n, Tensor *dy) {
  for (int i = 0; i < n->outs; i++) dy[i] = n->out[i]->dx;
}

static void conv_outputs(const Node *n, Dest *y) {
  const ConvAttr *a = NODE_ATTR(n, ConvAttr);
  for (int i = 0; i < a->pairs; i++) {
    y[i] = value_dest(n->out[i]);
    y[i].relu = a->relu;
    y[i].bias = conv_bias(n);
    y[i].addend = a->addend ? &n->in[a->pairs].v->x : NULL;
  }
}

static void conv_node_forward(Graph *g, Node *n) {
  const ConvAttr *a = NODE_ATTR(n, ConvAttr);
  Tensor x[MAX_LEVELS];
  Dest y[MAX_LEVELS];
  conv_inputs(n, x);
  conv_outputs(n, y);
  g->dev->ops->conv_forward(g->dev, &a->conv, a->pairs, x, conv_filter(n), y);
}

static FilterGrad filter_grad(const Node *n) {
  return (FilterGrad){.dw = n->filter->grad,
                      .db = n->bias && n->bias->trainable ? n->bias->grad.data : NULL,
                      .scale = NODE_ATTR(n, ConvAttr)->folded ? n->filter->fold->scale : NULL,
                      .accumulate = n->accumulate_params};
}

// The wanted inputs' destinations and the output gradients that belong to them.
static int wanted_pairs(const Node *n, Tensor *dy, Dest *dx) {
  int wanted = 0;
  for (int i = 0; i < NODE_ATTR(n, ConvAttr)->pairs; i++)
    if (n->in[i].wanted) {
      dx[wanted] = node_dest(n, i);
      dy[wanted++] = n->out[i]->dx;
    }
  return wanted;
}

static void conv_node_backward(Graph *g, Node *n) {
  const ConvAttr *a = NODE_ATTR(n, ConvAttr);
  Tensor x[MAX_LEVELS], dy[MAX_LEVELS];
  if (n->filter->trainable) {
    FilterGrad out = filter_grad(n);
    conv_inputs(n, x);
    conv_output_grads(n, dy);
    g->dev->ops->conv_wgrad(g->dev, &a->conv, a->pairs, x, dy, &out);
  }
  Dest dx[MAX_LEVELS];
  int wanted = wanted_pairs(n, dy, dx);
  if (wanted) g->dev->ops->conv_dgrad(g->dev, &a->conv, wanted, dy, conv_filter(n), dx);
}

static double filter_flops(const Node *n, const Value *per_pixel) {
  return 2.0 * (double)tensor_pixels(&per_pixel->x) * (double)param_elements(n->filter);
}

// Forward, wgrad and dgrad are products of the same size; dgrad is for the inputs whose gradient is wanted.
static double conv_flops(const Node *n, int pass) {
  double sum = 0;
  for (int i = 0; i < n->outs; i++)
    sum += filter_flops(n, n->out[i]) * (pass ? n->filter->trainable + n->in[i].wanted : 1);
  return sum;
}

static int conv_window(const Node *n) { return n->filter->master.h * n->filter->master.w; }

static const NodeKind conv_kind = {.name = "conv",
                                   .forward = conv_node_forward,
                                   .backward = conv_node_backward,
                                   .reads_in = true,
                                   .flops = conv_flops,
                                   .window = conv_window};

// The transpose of a convolution: forward is that one's dgrad, dx its forward, and in wgrad x and dy change places.
static void transposed_forward(Graph *g, Node *n) {
  const ConvAttr *a = NODE_ATTR(n, ConvAttr);
  Dest y[MAX_LEVELS];
  conv_outputs(n, y);
  g->dev->ops->conv_dgrad(g->dev, &a->conv, 1, &n->in[0].v->x, conv_filter(n), y);
}

static void transposed_backward(Graph *g, Node *n) {
  const ConvAttr *a = NODE_ATTR(n, ConvAttr);
  if (n->filter->trainable) {
    FilterGrad out = filter_grad(n);
    out.db = NULL;
    g->dev->ops->conv_wgrad(g->dev, &a->conv, 1, &n->out[0]->dx, &n->in[0].v->x, &out);
    g->dev->ops->bias_grad(g->dev, &n->out[0]->dx, n->bias->grad.data, n->accumulate_params);
  }
  if (n->in[0].wanted) {
    Dest dx = node_dest(n, 0);
    g->dev->ops->conv_forward(g->dev, &a->conv, 1, &n->out[0]->dx, conv_filter(n), &dx);
  }
}

static double transposed_flops(const Node *n, int pass) {
  return filter_flops(n, n->in[0].v) * (pass ? n->filter->trainable + n->in[0].wanted : 1);
}

static const NodeKind transposed_kind = {.name = "conv_t",
                                         .forward = transposed_forward,
                                         .backward = transposed_backward,
                                         .reads_in = true,
                                         .flops = transposed_flops};

static void declare_fold(Graph *g, Param *filter, const ConvLayer *c) {
  Params *p = g->params;
  const char *f = c->fold;
  Param *gamma = c->fold_trainable ? param_vector(p, graph_name(g, "%s.weight", f), c->k, false, INIT_ONE, 0)
                                   : param_buffer(p, graph_name(g, "%s.weight", f), c->k, INIT_ONE);
  Param *beta = c->fold_trainable ? param_vector(p, graph_name(g, "%s.bias", f), c->k, false, INIT_ZERO, 0)
                                  : param_buffer(p, graph_name(g, "%s.bias", f), c->k, INIT_ZERO);
  Param *mean = param_buffer(p, graph_name(g, "%s.running_mean", f), c->k, INIT_ZERO);
  Param *var = param_buffer(p, graph_name(g, "%s.running_var", f), c->k, INIT_ONE);
  param_fold(p, filter, gamma, beta, mean, var, c->fold_eps);
}

static void append_conv(Graph *g, const char *name, int pairs, Value **x, Value **y, const ConvLayer *c) {
  CHECK(pairs <= MAX_LEVELS && (pairs == 1 || (!c->addend && !c->transposed)));
  Node *n = graph_node(g, c->transposed ? &transposed_kind : &conv_kind, name);
  ConvAttr *a = NODE_ATTR(n, ConvAttr);
  *a = (ConvAttr){.conv = {.stride = c->stride, .pad = c->pad},
                  .pairs = pairs,
                  .relu = c->relu,
                  .addend = c->addend != NULL,
                  .folded = c->fold != NULL};
  bool trainable = c->trainable && g->training;
  int in = x[0]->x.c, rows = c->transposed ? in : c->k, cols = c->transposed ? c->k : in;
  n->filter = param_filter(g->params, graph_name(g, "%s.weight", name), rows, c->r, c->s, cols, c->connected, trainable,
                           c->init);
  float fan_in = (float)(cols * c->r * c->s);
  if (c->fold)
    declare_fold(g, n->filter, c);
  else
    n->filter->plain = true;
  if (c->bias) n->bias = param_vector(g->params, graph_name(g, "%s.bias", name), c->k, trainable, c->bias_init, fan_in);
  for (int i = 0; i < pairs; i++) {
    const Tensor *t = &x[i]->x;
    int h = c->transposed ? (t->h - 1) * c->stride + c->r : (t->h + 2 * c->pad - c->r) / c->stride + 1;
    int w = c->transposed ? (t->w - 1) * c->stride + c->s : (t->w + 2 * c->pad - c->s) / c->stride + 1;
    y[i] = graph_value(g, pairs > 1 ? graph_name(g, "%s.%d", name, i) : name, tensor(g->act, t->n, h, w, c->k));
    y[i]->relu = c->relu;
    y[i]->count = x[i]->count;
    node_in(n, x[i], FLOW_DENSE);
    node_out(n, y[i]);
  }
  if (c->addend) node_in(n, c->addend, FLOW_IDENTITY);
}

Value *layer_conv(Graph *g, const char *name, Value *x, const ConvLayer *c) {
  Value *y;
  append_conv(g, name, 1, &x, &y, c);
  return y;
}

void layer_conv_shared(Graph *g, const char *name, int pairs, Value **x, Value **y, const ConvLayer *c) {
  append_conv(g, name, pairs, x, y, c);
}

// ---- pooling ----------------------------------------------------------------------------------------------------

static void pool_forward(Graph *g, Node *n) {
  Dest y = value_dest(n->out[0]);
  g->dev->ops->max_pool_forward(g->dev, NODE_ATTR(n, Pool), &n->in[0].v->x, &y);
}

static void pool_backward(Graph *g, Node *n) {
  if (!n->in[0].wanted) return;
  Dest dx = node_dest(n, 0);
  g->dev->ops->max_pool_backward(g->dev, NODE_ATTR(n, Pool), &n->in[0].v->x, &n->out[0]->dx, &dx);
}

static int pool_window(const Node *n) { return NODE_ATTR(n, Pool)->size * NODE_ATTR(n, Pool)->size; }

static const NodeKind pool_kind = {
    .name = "max_pool", .forward = pool_forward, .backward = pool_backward, .reads_in = true, .window = pool_window};

Value *layer_max_pool(Graph *g, const char *name, Value *x, Pool pool) {
  Node *n = graph_node(g, &pool_kind, name);
  *NODE_ATTR(n, Pool) = pool;
  int h = (x->x.h + 2 * pool.pad - pool.size) / pool.stride + 1;
  int w = (x->x.w + 2 * pool.pad - pool.size) / pool.stride + 1;
  Value *y = graph_value(g, name, tensor(g->act, x->x.n, h, w, x->x.c));
  node_in(n, x, FLOW_DENSE);
  node_out(n, y);
  return y;
}

// ---- normalisation ----------------------------------------------------------------------------------------------

typedef struct NormAttr {
  NormLayer layer;
  void *stats;
  Param *mean, *var; // running statistics of batch norm
} NormAttr;

static void norm_forward(Graph *g, Node *n) {
  const NormAttr *a = NODE_ATTR(n, NormAttr);
  const NormLayer *l = &a->layer;
  const Tensor *x = &n->in[0].v->x;
  Dest y = value_dest(n->out[0]);
  y.relu = l->relu;
  y.addend = l->addend ? &l->addend->x : NULL;
  if (l->batch)
    g->dev->ops->batch_norm_forward(g->dev, l->eps, l->momentum, x, n->gamma->master.data, n->beta->master.data,
                                    a->mean->master.data, a->var->master.data, a->stats, &y);
  else
    g->dev->ops->group_norm_forward(g->dev, l->groups, l->eps, x, n->gamma->master.data, n->beta->master.data, a->stats,
                                    &y);
}

static void norm_backward(Graph *g, Node *n) {
  const NormAttr *a = NODE_ATTR(n, NormAttr);
  const Tensor *x = &n->in[0].v->x, *dy = &n->out[0]->dx;
  Dest dx = node_dest(n, 0);
  if (a->layer.batch)
    g->dev->ops->batch_norm_backward(g->dev, x, dy, n->gamma->master.data, a->stats, &dx, n->gamma->grad.data,
                                     n->beta->grad.data, n->accumulate_params);
  else
    g->dev->ops->group_norm_backward(g->dev, a->layer.groups, x, dy, n->gamma->master.data, a->stats, &dx,
                                     n->gamma->grad.data, n->beta->grad.data, n->accumulate_params);
}

static const NodeKind norm_kind = {
    .name = "norm", .forward = norm_forward, .backward = norm_backward, .reads_in = true};

Value *layer_norm(Graph *g, const char *name, Value *x, const NormLayer *l) {
  Node *n = graph_node(g, &norm_kind, name);
  NormAttr *a = NODE_ATTR(n, NormAttr);
  a->layer = *l;
  int c = x->x.c;
  bool trainable = l->trainable && g->training;
  n->gamma = param_vector(g->params, graph_name(g, "%s.weight", name), c, trainable, INIT_ONE, 0);
  n->beta = param_vector(g->params, graph_name(g, "%s.bias", name), c, trainable, INIT_ZERO, 0);
  if (l->batch) {
    a->mean = param_buffer(g->params, graph_name(g, "%s.running_mean", name), c, INIT_ZERO);
    a->var = param_buffer(g->params, graph_name(g, "%s.running_var", name), c, INIT_ONE);
  }
  size_t stats = 2 * (size_t)(l->batch ? c : x->x.n * l->groups);
  graph_memory(g, graph_name(g, "stats(%s)", name), stats * dtype_size(g->dev->real), &a->stats);
  Value *y = graph_value(g, name, x->x);
  y->relu = l->relu;
  node_in(n, x, FLOW_DENSE);
  if (l->addend) node_in(n, l->addend, FLOW_IDENTITY);
  node_out(n, y);
  return y;
}
