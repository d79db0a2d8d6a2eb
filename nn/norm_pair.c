// Two norms that are added, as one node: where the shortcut of a residual block has a norm of its own.
#include "nn/layers.h"

// Inputs: x, then the addend; of each its parameters, the second's behind the first's, and the statistics.
typedef struct NormPair {
  NormLayer l;
  const Value *moments[2];
} NormPair;

static int groups_of(const Node *n) { return NODE_ATTR(n, NormPair)->l.batch ? 0 : NODE_ATTR(n, NormPair)->l.groups; }
static const ParamUse *use_of(const Node *n, int norm, int i) { return &n->use[norm * (n->uses / 2) + i]; }

static void norm_pair_inputs(const Node *n, PairedNorm *in) {
  for (int i = 0; i < 2; i++) {
    const Value *moments = NODE_ATTR(n, NormPair)->moments[i];
    in[i] = (PairedNorm){.x = n->in[i].v->x,
                         .gamma = use_of(n, i, NORM_GAMMA)->p->master.data,
                         .beta = use_of(n, i, NORM_BETA)->p->master.data,
                         .stats = n->save[i]->x.data};
    if (groups_of(n) == 0) {
      in[i].running_mean = use_of(n, i, NORM_MEAN)->p->master.data;
      in[i].running_var = use_of(n, i, NORM_VAR)->p->master.data;
    }
    if (moments) {
      in[i].parts = moments->x.n;
      in[i].moments = moments->x.data;
    }
  }
}

static void norm_pair_forward(Graph *g, Node *n) {
  const NormLayer *l = &NODE_ATTR(n, NormPair)->l;
  PairedNorm in[2];
  norm_pair_inputs(n, in);
  g->dev->ops->norm_pair_forward(g->dev, groups_of(n), l->eps, l->momentum, in, &n->out[0]->x);
}

static void norm_pair_backward(Graph *g, Node *n) {
  PairedNorm in[2];
  PairedNormGrad to[2];
  norm_pair_inputs(n, in);
  for (int i = 0; i < 2; i++) {
    const ParamUse *gamma = use_of(n, i, NORM_GAMMA), *beta = use_of(n, i, NORM_BETA);
    CHECK(gamma->accumulate == beta->accumulate);
    to[i] = (PairedNormGrad){.dx = node_dest(n, i),
                             .dgamma = gamma->p->grad.data,
                             .dbeta = beta->p->grad.data,
                             .accumulate = gamma->accumulate};
  }
  g->dev->ops->norm_pair_backward(g->dev, groups_of(n), in, &n->out[0]->dx, to);
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
  CHECK(l->relu && (!l->batch || (g->training && !l->over_ranks)));
  pair->l = *l;
  for (int i = 0; i < 2; i++) {
    Param *p[NORM_PARAMS];
    for (int j = 0, params = layer_norm_params(g, names[i], in[i]->x.c, l, p); j < params; j++) node_use(n, p[j]);
    node_save(n, graph_value(g, graph_name(g, "stats(%s)", names[i]), layer_norm_stats(g, &in[i]->x, l)));
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
