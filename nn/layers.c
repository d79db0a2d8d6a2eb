// Convolutions and dense layers as nodes.
#include "nn/layers.h"

// ---- convolution ------------------------------------------------------------------------------------------------

typedef struct ConvAttr {
  Conv conv;
  int pairs;
  bool relu, addend, folded;
  Pool pool; // of its output, by the same op; size 0: none
} ConvAttr;

// Inputs: x of every pair, then the addend, if there is one. Outputs: y of every pair.
// Indices of a convolution's parameters; bias and sibling are optional.
enum { CONV_FILTER, CONV_BIAS, CONV_SIBLING, CONV_SIBLING_BIAS };

enum { CONV_MOMENTS }; // what it tells the batch norm behind it, where it can

static const Param *filter_of(const Node *n) { return n->use[CONV_FILTER].p; }
static const Param *bias_of(const Node *n) { return n->use[CONV_BIAS].p; }

static const void *conv_bias(const Node *n) {
  if (NODE_ATTR(n, ConvAttr)->folded) return filter_of(n)->fold->shift;
  return bias_of(n) ? bias_of(n)->master.data : NULL;
}

// With the sibling's filters, which stand behind.
static Tensor with_sibling(const Node *n, Tensor filters) {
  if (n->uses > CONV_SIBLING) filters.n += n->use[CONV_SIBLING].p->master.n;
  return filters;
}

static Tensor conv_filter(const Node *n) {
  return with_sibling(n, NODE_ATTR(n, ConvAttr)->folded ? filter_of(n)->folded : filter_of(n)->shadow);
}

static Tensor forward_filter(const Graph *g, const Node *n) {
  const bool packed = filter_of(n)->packs && !g->training && n->uses <= CONV_SIBLING;
  return packed ? filter_of(n)->packed : conv_filter(n);
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
    y[i].moments = n->asides ? n->aside[CONV_MOMENTS]->x.data : NULL;
    y[i].pool = a->pool.size ? &a->pool : NULL;
  }
}

static void conv_node_forward(Graph *g, Node *n) {
  const ConvAttr *a = NODE_ATTR(n, ConvAttr);
  Tensor x[MAX_LEVELS];
  Dest y[MAX_LEVELS];
  conv_inputs(n, x);
  conv_outputs(n, y);
  const Tensor w = forward_filter(g, n);
  g->dev->ops->conv_forward(g->dev, &a->conv, a->pairs, x, &w, y);
}

static FilterGrad filter_grad(const Node *n) {
  const ParamUse *filter = &n->use[CONV_FILTER], *bias = &n->use[CONV_BIAS];
  bool trains_bias = bias->p && bias->p->trainable;
  CHECK(!trains_bias || bias->accumulate == filter->accumulate); // FilterGrad has one flag for both
  if (n->uses > CONV_SIBLING)
    CHECK(!filter->accumulate && !n->use[CONV_SIBLING].accumulate && !n->use[CONV_SIBLING_BIAS].accumulate);
  return (FilterGrad){.dw = with_sibling(n, filter->p->grad),
                      .db = trains_bias ? bias->p->grad.data : NULL,
                      .scale = NODE_ATTR(n, ConvAttr)->folded ? filter->p->fold->scale : NULL,
                      .accumulate = filter->accumulate,
                      .squares = filter->p->squares};
}

// The wanted inputs' destinations and the output gradients that belong to them.
static int wanted_pairs(const Node *n, Tensor *dy, Dest *dx) {
  int wanted = 0;
  for (int i = 0; i < NODE_ATTR(n, ConvAttr)->pairs; i++)
    if (n->in[i].wanted) {
      dx[wanted] = node_dest(n, i);
      dy[wanted] = n->out[i]->dx;
      wanted++;
    }
  return wanted;
}

// Multiprocessors for wgrad, while dgrad takes the others. 0: each takes all. Not where a norm follows, whose passes a
// wgrad that takes all runs beside.
static int lent_to_wgrad(const Graph *g, const Node *n) {
  const ConvAttr *a = NODE_ATTR(n, ConvAttr);
  const bool both = n->in[0].wanted && filter_of(n)->trainable && conv_bias(n) && a->pairs == 1;
  return both ? g->dev->ops->conv_wgrad_share(g->dev, &a->conv, &n->in[0].v->x, &filter_of(n)->master) : 0;
}

static void conv_node_gradients(Graph *g, Node *n) {
  const ConvAttr *a = NODE_ATTR(n, ConvAttr);
  Tensor x[MAX_LEVELS], dy[MAX_LEVELS];
  if (!filter_of(n)->trainable) return;
  const FilterGrad out = filter_grad(n);
  conv_inputs(n, x);
  conv_output_grads(n, dy);
  const int granted = g->dev->granted, lent = lent_to_wgrad(g, n);
  if (lent) g->dev->granted = lent; // in one queue, too, for the same bits
  g->dev->ops->conv_wgrad(g->dev, &a->conv, a->pairs, x, dy, &out);
  g->dev->granted = granted;
}

static void conv_node_backward(Graph *g, Node *n) {
  const ConvAttr *a = NODE_ATTR(n, ConvAttr);
  Tensor dy[MAX_LEVELS];
  Dest dx[MAX_LEVELS];
  int wanted = wanted_pairs(n, dy, dx);
  const Tensor w = conv_filter(n);
  const int lent = g->dev->lent;
  if (g->dev->contended) g->dev->lent = MAX(lent, lent_to_wgrad(g, n));
  if (wanted) g->dev->ops->conv_dgrad(g->dev, &a->conv, wanted, dy, &w, dx);
  g->dev->lent = lent;
}

// Of a convolution's output, before it is pooled.
static Tensor conv_shape(const Tensor *x, Conv c, Tensor w) {
  return tensor(x->dtype, x->n, (x->h + 2 * c.pad - w.h) / c.stride + 1, (x->w + 2 * c.pad - w.w) / c.stride + 1, w.n);
}

static double filter_flops(const Node *n, const Value *per_pixel) {
  const Param *sibling = n->uses > CONV_SIBLING ? n->use[CONV_SIBLING].p : NULL;
  const size_t elements = param_elements(filter_of(n)) + (sibling ? param_elements(sibling) : 0);
  return 2.0 * (double)tensor_pixels(&per_pixel->x) * (double)elements;
}

// Forward, wgrad and dgrad are products of the same size; dgrad is for the inputs whose gradient is wanted.
static double conv_flops(const Node *n, Pass pass) {
  const ConvAttr *a = NODE_ATTR(n, ConvAttr);
  if (a->pool.size) {
    const Value before = {.x = conv_shape(&n->in[0].v->x, a->conv, filter_of(n)->master)};
    return filter_flops(n, &before);
  }
  double sum = 0;
  for (int i = 0; i < n->outs; i++)
    sum += filter_flops(n, n->out[i]) * (pass == PASS_BACKWARD ? filter_of(n)->trainable + n->in[i].wanted : 1);
  return sum;
}

static int conv_window(const Node *n) {
  const ConvAttr *a = NODE_ATTR(n, ConvAttr);
  const int more = a->pool.size ? (a->pool.size - 1) * a->conv.stride : 0;
  return (filter_of(n)->master.h + more) * (filter_of(n)->master.w + more);
}

static const NodeType conv_node = {.name = "conv",
                                   .attr_size = sizeof(ConvAttr),
                                   .forward = conv_node_forward,
                                   .backward = conv_node_backward,
                                   .gradients = conv_node_gradients,
                                   .reads_in = true,
                                   .flops = conv_flops,
                                   .window = conv_window};

static const NodeType detached_node = {.name = "conv",
                                       .attr_size = sizeof(ConvAttr),
                                       .forward = conv_node_forward,
                                       .flops = conv_flops,
                                       .window = conv_window};

// The transpose of a convolution: forward is the convolution's dgrad, dx is its forward, and wgrad swaps x and dy.
static void transposed_forward(Graph *g, Node *n) {
  const ConvAttr *a = NODE_ATTR(n, ConvAttr);
  Dest y[MAX_LEVELS];
  conv_outputs(n, y);
  const Tensor w = conv_filter(n);
  g->dev->ops->conv_dgrad(g->dev, &a->conv, 1, &n->in[0].v->x, &w, y);
}

static void transposed_gradients(Graph *g, Node *n) {
  const ConvAttr *a = NODE_ATTR(n, ConvAttr);
  if (!filter_of(n)->trainable) return;
  FilterGrad out = filter_grad(n);
  out.db = NULL;
  g->dev->ops->conv_wgrad(g->dev, &a->conv, 1, &n->out[0]->dx, &n->in[0].v->x, &out);
  g->dev->ops->bias_grad(g->dev, &n->out[0]->dx, bias_of(n)->grad.data, n->use[CONV_BIAS].accumulate);
}

static void transposed_backward(Graph *g, Node *n) {
  const ConvAttr *a = NODE_ATTR(n, ConvAttr);
  if (!n->in[0].wanted) return;
  Dest dx = node_dest(n, 0);
  const Tensor w = conv_filter(n);
  g->dev->ops->conv_forward(g->dev, &a->conv, 1, &n->out[0]->dx, &w, &dx);
}

static double transposed_flops(const Node *n, Pass pass) {
  return filter_flops(n, n->in[0].v) * (pass == PASS_BACKWARD ? filter_of(n)->trainable + n->in[0].wanted : 1);
}

static const NodeType transposed_node = {.name = "conv_t",
                                         .attr_size = sizeof(ConvAttr),
                                         .forward = transposed_forward,
                                         .backward = transposed_backward,
                                         .gradients = transposed_gradients,
                                         .reads_in = true,
                                         .flops = transposed_flops};

static void declare_fold(Graph *g, Param *filter, const ConvLayer *c) {
  Params *p = g->params;
  const char *f = c->fold;
  Param *gamma = c->fold_trainable
                     ? param_vector(p, graph_name(g, "%s.weight", f), PARAM_NORM_SCALE, c->k, false, INIT_ONE, 0)
                     : param_buffer(p, graph_name(g, "%s.weight", f), c->k, INIT_ONE);
  Param *beta = c->fold_trainable
                    ? param_vector(p, graph_name(g, "%s.bias", f), PARAM_NORM_SHIFT, c->k, false, INIT_ZERO, 0)
                    : param_buffer(p, graph_name(g, "%s.bias", f), c->k, INIT_ZERO);
  Param *mean = param_buffer(p, graph_name(g, "%s.running_mean", f), c->k, INIT_ZERO);
  Param *var = param_buffer(p, graph_name(g, "%s.running_var", f), c->k, INIT_ONE);
  param_fold(p, filter, gamma, beta, mean, var, c->fold_eps);
}

// The sibling is declared first, since torchvision's head, and so every checkpoint, lists it first.
static void append_sibling(Graph *g, Node *n, const char *name, int in, const ConvLayer *c) {
  Param *filter[2], *bias[2];
  const bool trainable = c->trainable && g->training;
  CHECK(c->bias && !c->fold && !c->transposed && !c->connected);
  for (int i = 1; i >= 0; i--) {
    const char *layer = i ? c->sibling : name;
    const int k = i ? c->sibling_k : c->k;
    filter[i] =
        param_filter(g->params, graph_name(g, "%s.weight", layer), k, c->r, c->s, in, false, trainable, c->init);
    filter[i]->plain = true;
    bias[i] = param_vector(g->params, graph_name(g, "%s.bias", layer), PARAM_BIAS, k, trainable, c->bias_init,
                           (float)(in * c->r * c->s));
  }
  param_join(g->params, filter[0], filter[1]);
  param_join(g->params, bias[0], bias[1]);
  for (int i = 0; i < 2; i++) {
    node_use(n, filter[i]);
    node_use(n, bias[i]);
  }
}

void layer_conv_params(Graph *g, Node *n, const char *name, int in, const ConvLayer *c) {
  bool trainable = c->trainable && g->training;
  int rows = c->transposed ? in : c->k, cols = c->transposed ? c->k : in;
  Param *filter = param_filter(g->params, graph_name(g, "%s.weight", name), rows, c->r, c->s, cols, c->connected,
                               trainable, c->init),
        *bias = NULL;
  float fan_in = (float)(cols * c->r * c->s);
  if (c->fold)
    declare_fold(g, filter, c);
  else
    filter->plain = true;
  if (c->bias)
    bias = param_vector(g->params, graph_name(g, "%s.bias", name), PARAM_BIAS, c->k, trainable, c->bias_init, fan_in);
  node_use(n, filter);
  node_use(n, bias);
}

static void append_conv(Graph *g, const char *name, int pairs, Value **x, Value **y, const ConvLayer *c) {
  CHECK(pairs <= MAX_LEVELS && (pairs == 1 || (!c->addend && !c->transposed)));
  CHECK(!c->detached || (!c->transposed && !c->addend));
  Node *n = graph_node(g, c->transposed ? &transposed_node : c->detached ? &detached_node : &conv_node, name);
  ConvAttr *a = NODE_ATTR(n, ConvAttr);
  *a = (ConvAttr){.conv = {.stride = c->stride, .pad = c->pad},
                  .pairs = pairs,
                  .relu = c->relu,
                  .addend = c->addend != NULL,
                  .folded = c->fold != NULL};
  if (c->sibling)
    append_sibling(g, n, name, x[0]->x.c, c);
  else
    layer_conv_params(g, n, name, x[0]->x.c, c);
  if (!g->training && !c->sibling && !c->transposed) param_pack(g->params, n->use[CONV_FILTER].p, &a->conv);
  for (int i = 0; i < pairs; i++) {
    const Tensor *t = &x[i]->x;
    int h = c->transposed ? (t->h - 1) * c->stride + c->r : (t->h + 2 * c->pad - c->r) / c->stride + 1;
    int w = c->transposed ? (t->w - 1) * c->stride + c->s : (t->w + 2 * c->pad - c->s) / c->stride + 1;
    y[i] = graph_value(g, pairs > 1 ? graph_name(g, "%s.%d", name, i) : name,
                       tensor(g->act, t->n, h, w, c->k + c->sibling_k));
    y[i]->relu = c->relu;
    y[i]->rows = x[i]->rows;
    node_in(n, x[i], c->detached ? FLOW_NONE : FLOW_DENSE);
    node_out(n, y[i]);
  }
  if (c->addend) node_in(n, c->addend, FLOW_IDENTITY);
}

ConvLayer conv_3x3(int k, Init init, Init bias_init) {
  return (ConvLayer){.k = k,
                     .r = 3,
                     .s = 3,
                     .stride = 1,
                     .pad = 1,
                     .relu = true,
                     .bias = true,
                     .trainable = true,
                     .init = init,
                     .bias_init = bias_init};
}

Value *layer_conv(Graph *g, const char *name, Value *x, const ConvLayer *c) {
  Value *y;
  append_conv(g, name, 1, &x, &y, c);
  return y;
}

Value *layer_dense(Graph *g, const char *name, Value *x, const Dense *d) {
  return layer_conv(g, name, x,
                    &(ConvLayer){.k = d->k,
                                 .r = x->x.h,
                                 .s = x->x.w,
                                 .stride = 1,
                                 .connected = true,
                                 .relu = d->relu,
                                 .bias = true,
                                 .trainable = true,
                                 .init = d->init,
                                 .bias_init = d->bias_init});
}

void layer_conv_shared(Graph *g, const char *name, int pairs, Value **x, Value **y, const ConvLayer *c) {
  append_conv(g, name, pairs, x, y, c);
}

// The convolution of one pair, and of nothing but that, whose output is x; NULL: none.
static Node *plain_conv_of(const Graph *g, const Value *x) {
  Node *n = graph_writer(g, x);
  if (!n || n->type != &conv_node || x->rows || NODE_ATTR(n, ConvAttr)->pairs > 1 || n->asides) return NULL;
  return n->uses > CONV_SIBLING || NODE_ATTR(n, ConvAttr)->pool.size ? NULL : n;
}

Value *layer_conv_pooled(Graph *g, const char *name, Value *x, const Pool *pool) {
  Node *n = plain_conv_of(g, x);
  if (!n || filter_of(n)->trainable || (bias_of(n) && bias_of(n)->trainable)) return NULL;
  ConvAttr *a = NODE_ATTR(n, ConvAttr);
  const Value *in = n->in[0].v;
  const Node *before = graph_writer(g, in);
  if (g->dev->every_value || !a->relu || a->addend || (before && before->type->backward) || graph_readers(g, x))
    return NULL;
  Tensor w = filter_of(n)->master;
  w.dtype = g->act;
  if (!g->dev->ops->conv_pools(g->dev, &a->conv, pool, &in->x, &w)) return NULL;
  a->pool = *pool;
  x->name = name;
  x->x = tensor(g->act, x->x.n, pool_extent(pool, x->x.h, false), pool_extent(pool, x->x.w, false), x->x.c);
  return x;
}

Param *layer_conv_squares(const Graph *g, const Node *n, int *sums) {
  if (n->type != &conv_node || n->uses > CONV_SIBLING || !n->runs_backward) return NULL;
  const ConvAttr *a = NODE_ATTR(n, ConvAttr);
  Param *filter = n->use[CONV_FILTER].p;
  int writers = 0;
  for (int i = 0; i < g->nodes; i++)
    for (int j = 0; j < g->node[i]->uses; j++) writers += g->node[i]->runs_backward && g->node[i]->use[j].p == filter;
  if (!filter->trainable || writers != 1 || a->pairs != 1) return NULL;
  *sums = g->dev->ops->conv_squares(g->dev, &a->conv, &n->in[0].v->x, &filter->grad);
  return *sums ? filter : NULL;
}

Value *layer_conv_moments(Graph *g, const Value *x) {
  Node *n = plain_conv_of(g, x);
  if (!n) return NULL;
  Tensor w = filter_of(n)->master;
  w.dtype = g->act;
  const int parts = g->dev->ops->conv_moments(g->dev, &NODE_ATTR(n, ConvAttr)->conv, &n->in[0].v->x, &w, &x->x);
  if (!parts) return NULL;
  Value *v = graph_value(g, graph_name(g, "moments(%s)", x->name), tensor_packed(g->dev->real, parts, 3 * x->x.c));
  node_aside(n, v);
  return v;
}
