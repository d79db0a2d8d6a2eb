// A bottleneck of ResNet as one node, through which nothing flows back.
#include "nn/layers.h"

enum { USES = 2 }; // of parameters by each convolution: its filter, into which its norm is folded; and no bias

static const Param *filter_of(const Node *n, int conv) { return n->use[USES * conv].p; }

static void bottleneck_forward(Graph *g, Node *n) {
  Bottleneck b = {0};
  for (int i = 0; i < BOTTLENECK_CONVS; i++) {
    const Param *filter = filter_of(n, i);
    if (!filter) continue;
    b.w[i] = filter->folded;
    b.bias[i] = filter->fold->shift;
  }
  g->dev->ops->conv_bottleneck(g->dev, &b, &n->in[0].v->x, &n->out[0]->x);
}

static double bottleneck_flops(const Node *n, Pass pass) {
  size_t elements = 0;
  for (int i = 0; i < BOTTLENECK_CONVS; i++)
    if (filter_of(n, i)) elements += param_elements(filter_of(n, i));
  return pass == PASS_FORWARD ? 2.0 * (double)tensor_pixels(&n->out[0]->x) * (double)elements : 0;
}

static const NodeType bottleneck_node = {
    .name = "bottleneck", .forward = bottleneck_forward, .flops = bottleneck_flops};

Value *layer_bottleneck(Graph *g, const char *name, Value *x, const BottleneckLayer *l) {
  Bottleneck b = {0};
  for (int i = 0; i < BOTTLENECK_CONVS; i++) {
    const ConvLayer *c = &l->conv[i];
    if (!l->name[i]) continue;
    if (!c->fold || c->bias || c->stride > 1 || (c->trainable && g->training)) return NULL;
    b.w[i] = tensor(g->act, c->k, c->r, c->s, i <= BOTTLENECK_REDUCE ? x->x.c : l->conv[i - 1].k);
  }
  if (g->dev->every_value || x->rows || !g->dev->ops->conv_bottlenecks(g->dev, &b, &x->x)) return NULL;
  Node *n = graph_node(g, &bottleneck_node, name);
  for (int i = 0; i < BOTTLENECK_CONVS; i++)
    if (l->name[i])
      layer_conv_params(g, n, l->name[i], b.w[i].c, &l->conv[i]);
    else
      for (int j = 0; j < USES; j++) node_use(n, NULL);
  Value *y = graph_value(g, name, tensor(g->act, x->x.n, x->x.h, x->x.w, l->conv[BOTTLENECK_EXPAND].k));
  y->relu = true;
  node_in(n, x, FLOW_NONE);
  node_out(n, y);
  return y;
}
