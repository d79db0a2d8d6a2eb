// The mask predictor: a transposed convolution, 2 × 2 with stride 2, and logits of every class. At inference nobody
// reads the hidden layer, nor logits of classes that were not predicted: where there is an op for that, one node takes
// the place of three.
#include "models/rcnn.h"
#include "nn/layers.h"

typedef struct MaskLayers {
  const char *hidden_name, *logits_name;
  ConvLayer hidden, logits;
} MaskLayers;

static MaskLayers mask_layers(const ModelConfig *c) {
  return (MaskLayers){.hidden_name = "roi_heads.mask_predictor.conv5_mask",
                      .logits_name = "roi_heads.mask_predictor.mask_fcn_logits",
                      .hidden = {.k = c->mask_dim,
                                 .r = 2,
                                 .s = 2,
                                 .stride = 2,
                                 .transposed = true,
                                 .relu = true,
                                 .bias = true,
                                 .trainable = true,
                                 .init = INIT_KAIMING_NORMAL,
                                 .bias_init = INIT_LINEAR},
                      .logits = {.k = c->classes,
                                 .r = 1,
                                 .s = 1,
                                 .stride = 1,
                                 .bias = true,
                                 .trainable = true,
                                 .init = c->mask_logits_fan_in ? INIT_KAIMING_FAN_IN : INIT_KAIMING_NORMAL,
                                 .bias_init = INIT_LINEAR}};
}

static void append_mask_logits(Network *n, Value *x) {
  const MaskLayers l = mask_layers(&n->config);
  x = layer_conv(&n->graph, l.hidden_name, x, &l.hidden);
  rcnn_of(n)->mask_logits = layer_conv(&n->graph, l.logits_name, x, &l.logits);
}

// ---- logits of objects ----------------------------------------------------------------------------------------------

enum { OWN_FILTER, OWN_BIAS }; // indices of its parameters

// Inputs: x, objects, their targets.
static void own_logits_forward(Graph *g, Node *n) {
  const RoiTargets t = roi_targets(NULL, NULL, n->in[1].v, n->in[2].v);
  g->dev->ops->own_logits(g->dev, &t, &n->in[0].v->x, &n->use[OWN_FILTER].p->shadow, n->use[OWN_BIAS].p->master.data,
                          &n->out[0]->x, NULL);
}

static void own_logits_backward(Graph *g, Node *n) {
  const RoiTargets t = roi_targets(NULL, NULL, n->in[1].v, n->in[2].v);
  const ParamUse *filter = &n->use[OWN_FILTER], *bias = &n->use[OWN_BIAS];
  CHECK(n->in[0].wanted && bias->accumulate == filter->accumulate);
  const Dest dx = node_dest(n, 0);
  const FilterGrad out = {.dw = filter->p->grad, .db = bias->p->grad.data, .accumulate = filter->accumulate};
  g->dev->ops->own_logits_backward(g->dev, &t, &n->in[0].v->x, &filter->p->shadow, &n->out[0]->dx, &dx, &out);
}

static double own_logits_flops(const Node *n, Pass pass) {
  const Tensor *x = &n->in[0].v->x;
  return (pass == PASS_BACKWARD ? 4.0 : 2.0) * (double)tensor_pixels(x) * x->c;
}

static const NodeType own_logits_node = {.name = "own_logits",
                                         .forward = own_logits_forward,
                                         .backward = own_logits_backward,
                                         .reads_in = true,
                                         .flops = own_logits_flops};

// ---- the same with the layer before it ------------------------------------------------------------------------------

enum { HIDDEN_FILTER, HIDDEN_BIAS, LOGITS_FILTER, LOGITS_BIAS }; // indices of parameters
enum { SAVED_HIDDEN, SAVED_SIGNS };

// Inputs: x, objects, their targets.
static RoiTargets own_targets(const Node *n) { return roi_targets(NULL, NULL, n->in[1].v, n->in[2].v); }

static void own_predictor_forward(Graph *g, Node *n) {
  const Ops *ops = g->dev->ops;
  const RoiTargets t = own_targets(n);
  const Conv conv = {.stride = 2};
  const Tensor *hidden = &n->save[SAVED_HIDDEN]->x;
  const Dest to = {.t = *hidden, .relu = true, .bias = n->use[HIDDEN_BIAS].p->master.data};
  ops->conv_dgrad(g->dev, &conv, 1, &n->in[0].v->x, &n->use[HIDDEN_FILTER].p->shadow, &to);
  ops->own_logits(g->dev, &t, hidden, &n->use[LOGITS_FILTER].p->shadow, n->use[LOGITS_BIAS].p->master.data,
                  &n->out[0]->x, n->save[SAVED_SIGNS]->x.data);
}

static void own_predictor_backward(Graph *g, Node *n) {
  const RoiTargets t = own_targets(n);
  if (!n->in[0].wanted) return;
  const Dest dx = node_dest(n, 0);
  g->dev->ops->own_predictor_dgrad(g->dev, &t, &n->use[HIDDEN_FILTER].p->shadow, &n->use[LOGITS_FILTER].p->shadow,
                                   &n->out[0]->dx, n->save[SAVED_SIGNS]->x.data, &dx);
}

static FilterGrad own_grad(const Node *n, int filter) {
  const ParamUse *w = &n->use[filter], *bias = w + 1;
  CHECK(bias->accumulate == w->accumulate);
  return (FilterGrad){.dw = w->p->grad, .db = bias->p->grad.data, .accumulate = w->accumulate};
}

static void own_predictor_gradients(Graph *g, Node *n) {
  const RoiTargets t = own_targets(n);
  const FilterGrad out[2] = {own_grad(n, HIDDEN_FILTER), own_grad(n, LOGITS_FILTER)};
  g->dev->ops->own_predictor_wgrad(g->dev, &t, &n->in[0].v->x, &n->save[SAVED_HIDDEN]->x,
                                   &n->use[LOGITS_FILTER].p->shadow, &n->out[0]->dx, n->save[SAVED_SIGNS]->x.data, out);
}

static double own_predictor_flops(const Node *n, Pass pass) {
  const Tensor *hidden = &n->save[SAVED_HIDDEN]->x;
  const double filter = (double)tensor_pixels(&n->in[0].v->x) * (double)param_elements(n->use[HIDDEN_FILTER].p);
  return (pass == PASS_BACKWARD ? 4.0 : 2.0) * (filter + (double)tensor_pixels(hidden) * hidden->c);
}

static const NodeType own_predictor_node = {.name = "own_predictor",
                                            .forward = own_predictor_forward,
                                            .backward = own_predictor_backward,
                                            .gradients = own_predictor_gradients,
                                            .reads_in = true,
                                            .flops = own_predictor_flops};

static bool append_own_predictor(Network *network, Value *x) {
  Graph *g = &network->graph;
  Rcnn *m = rcnn_of(network);
  const MaskLayers l = mask_layers(&network->config);
  const Tensor filter = tensor(g->act, x->x.c, l.hidden.r, l.hidden.s, l.hidden.k),
               w = tensor(g->act, l.logits.k, 1, 1, l.hidden.k);
  if (!g->dev->ops->own_predictors(g->dev, &x->x, &filter, &w)) return false;
  Node *n = graph_node(g, &own_predictor_node, "roi_heads.mask_predictor");
  layer_conv_params(g, n, l.hidden_name, x->x.c, &l.hidden);
  layer_conv_params(g, n, l.logits_name, l.hidden.k, &l.logits);
  const Tensor shape = tensor(g->act, x->x.n, 2 * x->x.h, 2 * x->x.w, l.hidden.k);
  Value *hidden = graph_value(g, l.hidden_name, shape),
        *signs = graph_value(g, "mask_signs", tensor(F32, shape.n, shape.h, shape.w, shape.c / 32)); // a bit each
  hidden->rows = x->rows;
  m->mask_logits = mask_value(g, l.logits_name, x, 2);
  node_in(n, x, FLOW_DENSE);
  node_in(n, m->objects, FLOW_NONE);
  node_in(n, m->object_targets, FLOW_NONE);
  node_save(n, hidden);
  node_save(n, signs);
  node_out(n, m->mask_logits);
  return true;
}

void append_object_logits(Network *network, Value *x) {
  Graph *g = &network->graph;
  Rcnn *m = rcnn_of(network);
  const MaskLayers l = mask_layers(&network->config);
  if (g->dev->every_value) return append_mask_logits(network, x);
  if (append_own_predictor(network, x)) return;
  x = layer_conv(g, l.hidden_name, x, &l.hidden);
  Node *n = graph_node(g, &own_logits_node, l.logits_name);
  layer_conv_params(g, n, l.logits_name, x->x.c, &l.logits);
  m->mask_logits = mask_value(g, l.logits_name, x, 1);
  node_in(n, x, FLOW_DENSE);
  node_in(n, m->objects, FLOW_NONE);
  node_in(n, m->object_targets, FLOW_NONE);
  node_out(n, m->mask_logits);
}

Value *mask_value(Graph *g, const char *name, const Value *like, int scale) {
  Tensor t = tensor_packed(g->dev->real, like->x.n, 1);
  t.h = like->x.h * scale;
  t.w = like->x.w * scale;
  Value *v = graph_value(g, name, t);
  v->rows = like->rows;
  return v;
}

// ---- probabilities --------------------------------------------------------------------------------------------------

// Inputs: mask logits, detections.
static void mask_select_forward(Graph *g, Node *n) {
  g->dev->ops->mask_select(g->dev, &n->in[1].v->boxes, &n->in[0].v->x, &n->out[0]->x);
}
static const NodeType mask_select_node = {.name = "mask_select", .forward = mask_select_forward, .gathers = true};

static void append_mask_select(Network *network) {
  Graph *g = &network->graph;
  const Rcnn *m = rcnn_of(network);
  Node *n = graph_node(g, &mask_select_node, "mask_select");
  node_in(n, m->mask_logits, FLOW_NONE);
  node_in(n, m->detections, FLOW_NONE);
  node_out(n, m->mask_probs);
}

enum { PREDICT_FILTER, PREDICT_BIAS, PREDICT_CLASSES, PREDICT_CLASS_BIAS }; // indices of its parameters

// Inputs: x, detections.
static void mask_predict_forward(Graph *g, Node *n) {
  const MaskPredictor p = {.filter = n->use[PREDICT_FILTER].p->shadow,
                           .classes = n->use[PREDICT_CLASSES].p->shadow,
                           .bias = n->use[PREDICT_BIAS].p->master.data,
                           .class_bias = n->use[PREDICT_CLASS_BIAS].p->master.data};
  g->dev->ops->mask_predict(g->dev, &n->in[1].v->boxes, &n->in[0].v->x, &p, &n->out[0]->x);
}

static double mask_predict_flops(const Node *n, Pass pass) {
  const Tensor *filter = &n->use[PREDICT_FILTER].p->shadow;
  const double per_pixel = (double)filter->c * (filter->n + 1);
  return pass == PASS_FORWARD ? 2.0 * (double)tensor_pixels(&n->out[0]->x) * per_pixel : 0;
}

static const NodeType mask_predict_node = {
    .name = "mask_predict", .forward = mask_predict_forward, .flops = mask_predict_flops};

// In 16 bits, where nobody asked for a rung. Other types keep the separate nodes' arithmetic.
static bool mask_predict_fits(const Graph *g, const Value *x, const MaskLayers *l) {
  return g->act != g->dev->real && g->dev->wgmma && !g->dev->conv_rung &&
         MAX(x->x.ldc, channel_pitch(l->hidden.k)) <= MASK_PREDICT_CHANNELS &&
         x->x.h * x->x.w >= MASK_PREDICT_LEAST_PIXELS;
}

static void append_mask_predict(Network *network, Value *x, const MaskLayers *l) {
  Graph *g = &network->graph;
  const Rcnn *m = rcnn_of(network);
  Node *n = graph_node(g, &mask_predict_node, "mask_predict");
  layer_conv_params(g, n, l->hidden_name, x->x.c, &l->hidden);
  layer_conv_params(g, n, l->logits_name, l->hidden.k, &l->logits);
  node_in(n, x, FLOW_NONE);
  node_in(n, m->detections, FLOW_NONE);
  node_out(n, m->mask_probs);
}

void append_mask_probs(Network *n, Value *x) {
  const MaskLayers l = mask_layers(&n->config);
  Rcnn *m = rcnn_of(n);
  m->mask_probs = mask_value(&n->graph, "mask_probs", x, 2);
  m->mask_probs->keep = true;
  if (mask_predict_fits(&n->graph, x, &l)) return append_mask_predict(n, x, &l);
  append_mask_logits(n, x);
  append_mask_select(n);
}
