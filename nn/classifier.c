// Layers of classifiers: dropout, the loss and the probabilities.
#include "base/rng.h"
#include "nn/layers.h"

// ---- dropout ----------------------------------------------------------------------------------------------------

typedef struct DropoutAttr {
  float p;
  uint64_t layer;    // the name, as a key
  int64_t first_row; // of this rank among the rows of all
} DropoutAttr;

static Dropout dropout_of(const Graph *g, const Node *n) {
  const DropoutAttr *a = NODE_ATTR(n, DropoutAttr);
  return (Dropout){
      .p = a->p, .key = rng_key(rng_key(g->seed, RNG_DROPOUT), a->layer), .step = g->step, .first_row = a->first_row};
}

static void dropout_forward(Graph *g, Node *n) {
  Dropout p = dropout_of(g, n);
  Dest y = value_dest(n->out[0]);
  g->dev->ops->dropout(g->dev, &p, &n->in[0].v->x, &y);
}

static void dropout_backward(Graph *g, Node *n) {
  if (!n->in[0].wanted) return;
  Dropout p = dropout_of(g, n);
  Dest dx = node_dest(n, 0);
  g->dev->ops->dropout(g->dev, &p, &n->out[0]->dx, &dx);
}

static const NodeType dropout_node = {
    .name = "dropout", .attr_size = sizeof(DropoutAttr), .forward = dropout_forward, .backward = dropout_backward};

Value *layer_dropout(Graph *g, const char *name, Value *x, float p) {
  CHECK(p >= 0 && p <= 1);
  if (!g->training || p == 0) return x;
  Node *n = graph_node(g, &dropout_node, name);
  DropoutAttr *a = NODE_ATTR(n, DropoutAttr);
  *a = (DropoutAttr){.p = p, .first_row = (int64_t)group_rank(g->ranks) * x->x.n};
  for (const char *s = name; *s; s++) a->layer = rng_key(a->layer, (uint64_t)*s);
  Value *y = graph_value(g, name, x->x);
  y->rows = x->rows;
  node_in(n, x, FLOW_DENSE);
  node_out(n, y);
  return y;
}

// ---- loss -------------------------------------------------------------------------------------------------------

typedef struct ClassLossAttr {
  ClassLoss p;
  int index; // of its loss among those of the value that it writes to
} ClassLossAttr;

// Inputs: logits, labels. Outputs: losses, hits.
static void class_loss_forward(Graph *g, Node *n) {
  const ClassLossAttr *a = NODE_ATTR(n, ClassLossAttr);
  Tensor loss = tensor_packed(g->dev->real, 1, 1);
  void *losses = n->out[0]->x.data; // none while measuring
  if (losses) loss.data = (char *)losses + (size_t)a->index * dtype_size(loss.dtype);
  g->dev->ops->class_loss(g->dev, &a->p, n->in[1].v->labels, &n->in[0].v->x, &loss, &n->out[1]->hits);
}

// The op writes (=): the logits have no other reader that sends a gradient back.
static void class_loss_backward(Graph *g, Node *n) {
  const Input *in = &n->in[0];
  if (!in->wanted) return;
  CHECK(!in->accumulate && !in->addend && !in->mask);
  g->dev->ops->class_loss_backward(g->dev, &NODE_ATTR(n, ClassLossAttr)->p, n->in[1].v->labels, &in->v->x,
                                   g->loss_scale, &in->v->dx);
}

static const NodeType class_loss_node = {.name = "class_loss",
                                         .attr_size = sizeof(ClassLossAttr),
                                         .forward = class_loss_forward,
                                         .backward = class_loss_backward,
                                         .source = true,
                                         .reads_in = true};

void layer_class_loss(Graph *g, const char *name, Value *logits, Value *labels, const ClassLoss *p, Value *losses,
                      int index, Value *hits) {
  CHECK(logits->x.h == 1 && logits->x.w == 1 && !logits->rows && index < losses->x.c);
  CHECK(labels->type == VALUE_LABELS && hits->type == VALUE_HITS);
  Node *n = graph_node(g, &class_loss_node, name);
  *NODE_ATTR(n, ClassLossAttr) = (ClassLossAttr){*p, index};
  node_in(n, logits, FLOW_DENSE);
  node_in(n, labels, FLOW_NONE);
  node_out(n, losses);
  node_out(n, hits);
}

// ---- probabilities ----------------------------------------------------------------------------------------------

static void class_probs_forward(Graph *g, Node *n) { g->dev->ops->class_probs(g->dev, &n->in[0].v->x, &n->out[0]->x); }

static const NodeType class_probs_node = {.name = "class_probs", .forward = class_probs_forward};

Value *layer_class_probs(Graph *g, const char *name, Value *logits) {
  Node *n = graph_node(g, &class_probs_node, name);
  Value *y = graph_value(g, name, tensor_packed(g->dev->real, logits->x.n, logits->x.c));
  node_in(n, logits, FLOW_NONE);
  node_out(n, y);
  return y;
}
