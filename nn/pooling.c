// Layers that combine what stands side by side: pooling over windows, concatenation of channels.
#include "nn/layers.h"

static Value *append_pool(Graph *g, Node *n, const char *name, Value *x, int h, int w) {
  CHECK(h > 0 && w > 0);
  Value *y = graph_value(g, name, tensor(g->act, x->x.n, h, w, x->x.c));
  y->rows = x->rows;
  node_in(n, x, FLOW_DENSE);
  node_out(n, y);
  return y;
}

// ---- maxima -----------------------------------------------------------------------------------------------------

static void max_pool_forward(Graph *g, Node *n) {
  Dest y = value_dest(n->out[0]);
  g->dev->ops->max_pool_forward(g->dev, NODE_ATTR(n, Pool), &n->in[0].v->x, &y);
}

static void max_pool_backward(Graph *g, Node *n) {
  if (!n->in[0].wanted) return;
  Dest dx = node_dest(n, 0);
  g->dev->ops->max_pool_backward(g->dev, NODE_ATTR(n, Pool), &n->in[0].v->x, &n->out[0]->dx, &dx);
}

static int max_pool_window(const Node *n) { return NODE_ATTR(n, Pool)->size * NODE_ATTR(n, Pool)->size; }

static const NodeType max_pool_node = {.name = "max_pool",
                                       .attr_size = sizeof(Pool),
                                       .forward = max_pool_forward,
                                       .backward = max_pool_backward,
                                       .reads_in = true,
                                       .window = max_pool_window};

static Value *append_max_pool(Graph *g, const char *name, Value *x, Pool pool, bool ceil) {
  const int h = pool_extent(&pool, x->x.h, ceil), w = pool_extent(&pool, x->x.w, ceil);
  Value *pooled = layer_norm_pooled(g, name, x, &pool, h, w);
  if (pooled) return pooled;
  Node *n = graph_node(g, &max_pool_node, name);
  *NODE_ATTR(n, Pool) = pool;
  return append_pool(g, n, name, x, h, w);
}

Value *layer_max_pool(Graph *g, const char *name, Value *x, Pool pool) {
  Value *pooled = layer_conv_pooled(g, name, x, &pool);
  return pooled ? pooled : append_max_pool(g, name, x, pool, false);
}

Value *layer_max_pool_ceil(Graph *g, const char *name, Value *x, Pool pool) {
  return append_max_pool(g, name, x, pool, true);
}

// ---- means ------------------------------------------------------------------------------------------------------

static void avg_pool_forward(Graph *g, Node *n) {
  Dest y = value_dest(n->out[0]);
  g->dev->ops->avg_pool_forward(g->dev, NODE_ATTR(n, AvgPool), &n->in[0].v->x, &y);
}

static void avg_pool_backward(Graph *g, Node *n) {
  if (!n->in[0].wanted) return;
  Dest dx = node_dest(n, 0);
  g->dev->ops->avg_pool_backward(g->dev, NODE_ATTR(n, AvgPool), &n->out[0]->dx, &dx);
}

// Adaptive windows together cover everything.
static int avg_pool_window(const Node *n) {
  const AvgPool *p = NODE_ATTR(n, AvgPool);
  const Tensor *x = &n->in[0].v->x;
  return p->window.size ? p->window.size * p->window.size : x->h * x->w;
}

static const NodeType avg_pool_node = {.name = "avg_pool",
                                       .attr_size = sizeof(AvgPool),
                                       .forward = avg_pool_forward,
                                       .backward = avg_pool_backward,
                                       .window = avg_pool_window};

Value *layer_avg_pool(Graph *g, const char *name, Value *x, AvgPool pool, bool ceil) {
  Node *n = graph_node(g, &avg_pool_node, name);
  *NODE_ATTR(n, AvgPool) = pool;
  const Pool *w = &pool.window;
  return append_pool(g, n, name, x, pool_extent(w, x->x.h, ceil), pool_extent(w, x->x.w, ceil));
}

Value *layer_adaptive_avg_pool(Graph *g, const char *name, Value *x, int h, int w) {
  return append_pool(g, graph_node(g, &avg_pool_node, name), name, x, h, w);
}

// ---- concatenation ----------------------------------------------------------------------------------------------

static void concat_forward(Graph *g, Node *n) {
  if (n->in_place) return;
  Tensor x[MAX_CONCAT];
  Dest y = value_dest(n->out[0]);
  for (int i = 0; i < n->ins; i++) x[i] = n->in[i].v->x;
  g->dev->ops->concat(g->dev, n->ins, x, &y);
}

static void concat_backward(Graph *g, Node *n) {
  if (n->in_place) return;
  for (int i = 0, first = 0; i < n->ins; first += n->in[i++].v->x.c) {
    if (!n->in[i].wanted) continue;
    Dest dx = node_dest(n, i);
    g->dev->ops->slice(g->dev, first, &n->out[0]->dx, &dx);
  }
}

static const NodeType concat_node = {
    .name = "concat", .forward = concat_forward, .backward = concat_backward, .concat = true};

Value *layer_concat(Graph *g, const char *name, int parts, Value **x) {
  CHECK(parts > 0 && parts <= MAX_CONCAT);
  Node *n = graph_node(g, &concat_node, name);
  int channels = 0;
  for (int i = 0; i < parts; i++) {
    CHECK(x[i]->x.h == x[0]->x.h && x[i]->x.w == x[0]->x.w && x[i]->rows == x[0]->rows);
    channels += x[i]->x.c;
    node_in(n, x[i], FLOW_DENSE);
  }
  Value *y = graph_value(g, name, tensor(g->act, x[0]->x.n, x[0]->x.h, x[0]->x.w, channels));
  y->rows = x[0]->rows;
  node_out(n, y);
  return y;
}
