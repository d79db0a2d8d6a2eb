// Two group norms that are added, as one node: where the shortcut of a residual block has a norm of its own.
#include "nn/layers.h"

enum { PAIR_GAMMA, PAIR_BETA }; // indices of a norm's parameters, the second one's behind the first one's

// Inputs: x, then the addend; of each two parameters, and the statistics.
typedef struct NormPair {
  NormLayer l;
  const Value *moments[2];
} NormPair;

static void norm_pair_inputs(const Node *n, PairedNorm *in) {
  for (int i = 0; i < 2; i++) {
    const Value *moments = NODE_ATTR(n, NormPair)->moments[i];
    in[i] = (PairedNorm){.x = n->in[i].v->x,
                         .gamma = n->use[2 * i + PAIR_GAMMA].p->master.data,
                         .beta = n->use[2 * i + PAIR_BETA].p->master.data,
                         .stats = n->save[i]->x.data,
                         .moments = moments ? moments->x.data : NULL};
  }
}

static void norm_pair_forward(Graph *g, Node *n) {
  const NormLayer *l = &NODE_ATTR(n, NormPair)->l;
  PairedNorm in[2];
  norm_pair_inputs(n, in);
  g->dev->ops->group_norm_pair_forward(g->dev, l->groups, l->eps, in, &n->out[0]->x);
}

static void norm_pair_backward(Graph *g, Node *n) {
  PairedNorm in[2];
  PairedNormGrad to[2];
  norm_pair_inputs(n, in);
  for (int i = 0; i < 2; i++) {
    const ParamUse *gamma = &n->use[2 * i + PAIR_GAMMA], *beta = &n->use[2 * i + PAIR_BETA];
    CHECK(gamma->accumulate == beta->accumulate);
    to[i] = (PairedNormGrad){.dx = node_dest(n, i),
                             .dgamma = gamma->p->grad.data,
                             .dbeta = beta->p->grad.data,
                             .accumulate = gamma->accumulate};
  }
  g->dev->ops->group_norm_pair_backward(g->dev, NODE_ATTR(n, NormPair)->l.groups, in, &n->out[0]->dx, to);
}

static const NodeType norm_pair_node = {.name = "norm_pair",
                                        .attr_size = sizeof(NormPair),
                                        .forward = norm_pair_forward,
                                        .backward = norm_pair_backward,
                                        .reads_in = true};

Value *layer_norm_pair(Graph *g, const char *name, Value *x, const char *addend_name, const NormLayer *l) {
  Node *n = graph_node(g, &norm_pair_node, name);
  NormPair *pair = NODE_ATTR(n, NormPair);
  const char *names[2] = {name, addend_name};
  Value *in[2] = {x, l->addend};
  CHECK(!l->batch && l->relu);
  pair->l = *l;
  for (int i = 0; i < 2; i++) {
    Param *affine[2];
    layer_norm_params(g, names[i], in[i]->x.c, l->trainable && g->training, affine);
    for (int j = PAIR_GAMMA; j <= PAIR_BETA; j++) node_use(n, affine[j]);
    node_save(n, graph_value(g, graph_name(g, "stats(%s)", names[i]),
                             tensor_packed(g->dev->real, in[i]->x.n * l->groups, 2)));
    Value *moments = g->training ? layer_conv_moments(g, in[i]) : NULL;
    if (moments) node_aside(n, moments);
    pair->moments[i] = moments;
  }
  Value *y = graph_value(g, name, x->x);
  y->relu = true;
  for (int i = 0; i < 2; i++) node_in(n, in[i], FLOW_DENSE);
  node_out(n, y);
  return y;
}
