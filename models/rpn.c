// Region proposal network: Ren, He, Girshick, Sun, "Faster R-CNN", 2015.
#include <math.h>
#include "models/anchors.h"
#include "models/rcnn.h"
#include "nn/layers.h"

static BoxCoder rpn_coder(const ModelConfig *c) {
  return (BoxCoder){.weight = {1, 1, 1, 1}, .clamp = logf(1000.f / 16), .extra = c->box_extra};
}

// The inputs of nodes that look at all levels, or at the head's outputs, of which samples are one tensor: these, then
// what else the node reads.
static const Value *last_input(const Node *n) { return n->in[n->ins - 1].v; }

typedef struct HeadOutputs {
  Tensor logits[MAX_LEVELS], deltas[MAX_LEVELS];
} HeadOutputs;

// As channels of the tensor that holds both; or their gradients.
static HeadOutputs head_outputs(const Node *n, int per_cell, bool grads) {
  HeadOutputs o = {0};
  for (int l = 0; l < n->ins - 1; l++) {
    const Value *v = n->in[l].v;
    Tensor *logits = &o.logits[l], *deltas = &o.deltas[l];
    *logits = *deltas = grads ? v->dx : v->x;
    deltas->c = 4 * per_cell;
    logits->c = per_cell;
    if (logits->data) logits->data = (char *)logits->data + (size_t)deltas->c * dtype_size(deltas->dtype);
  }
  return o;
}

// Its two convolutions, of which the second's are deltas and, behind them, logits.
typedef struct HeadLayers {
  const char *hidden_name, *output_name;
  ConvLayer hidden, output;
} HeadLayers;
static HeadLayers head_layers(const Network *n) {
  HeadLayers h = {.hidden_name = "rpn.head.conv.0.0", .output_name = "rpn.head.bbox_pred"};
  h.hidden = h.output = conv_3x3(n->config.fpn_channels, INIT_NORMAL_001, INIT_ZERO);
  h.output.r = h.output.s = 1;
  h.output.pad = 0;
  h.output.relu = false;
  h.output.k = 4 * rcnn_of(n)->anchors.per_cell;
  h.output.sibling = "rpn.head.cls_logits";
  h.output.sibling_k = rcnn_of(n)->anchors.per_cell;
  return h;
}

// Whether the losses are of the head at sampled anchors' cells alone, which takes three passes over these in the place
// of two over the maps.
static bool samples_head(const Network *n) {
  const Anchors *a = &rcnn_of(n)->anchors;
  return n->purpose != FOR_INFERENCE && !n->graph.dev->every_value &&
         3 * n->config.rpn_batch < 2 * (a->total / a->per_cell);
}

// ---- proposals --------------------------------------------------------------------------------------------------

typedef struct RpnSelectAttr {
  RpnSelect p;
  const Anchors *anchors;
} RpnSelectAttr;

static void select_forward(Graph *g, Node *n) {
  const RpnSelectAttr *a = NODE_ATTR(n, RpnSelectAttr);
  const HeadOutputs x = head_outputs(n, a->anchors->per_cell, false);
  g->dev->ops->rpn_select(g->dev, &a->p, a->anchors, last_input(n)->images.info, x.logits, x.deltas, &n->out[0]->boxes);
}
static const NodeType select_node = {.name = "rpn_select",
                                     .attr_size = sizeof(RpnSelectAttr),
                                     .forward = select_forward,
                                     .gathers = true,
                                     .beside = true,
                                     .lent = PROPOSALS_LENT};

static void cut_forward(Graph *g, Node *n) { g->dev->ops->boxes_cut(g->dev, *NODE_ATTR(n, int), &n->out[0]->boxes); }
static const NodeType cut_node = {
    .name = "boxes_cut", .attr_size = sizeof(int), .forward = cut_forward, .beside = true, .lent = PROPOSALS_LENT};

static void append_select(Network *network, Value *out) {
  const Rcnn *m = rcnn_of(network);
  const ModelConfig *c = &network->config;
  Node *n = graph_node(&network->graph, &select_node, "rpn_select");
  for (int l = 0; l < MAX_LEVELS; l++) node_in(n, m->rpn_outputs[l], FLOW_NONE);
  *NODE_ATTR(n, RpnSelectAttr) = (RpnSelectAttr){
      .p = {.coder = rpn_coder(c), .min_size = c->rpn_min_size, .min_score = c->rpn_min_score}, .anchors = &m->anchors};
  node_in(n, network->input, FLOW_NONE);
  node_out(n, out);
}

// Leaves `limit` proposals of all images together.
static void append_cut(Graph *g, int limit, Value *proposals) {
  Node *n = graph_node(g, &cut_node, "rpn_cut");
  *NODE_ATTR(n, int) = limit;
  node_in(n, proposals, FLOW_NONE);
  node_out(n, proposals);
}

static void build_proposals(Network *network) {
  Graph *g = &network->graph;
  Rcnn *m = rcnn_of(network);
  const ModelConfig *c = &network->config;
  const int images = network->images;
  const bool training = network->purpose != FOR_INFERENCE;
  const bool by_batch = training && c->rpn_post_nms_by_batch; // proposals of all images compete for the same slots
  int pre = training ? c->rpn_pre_nms_train : config_pre_nms(c);
  int post = training ? c->rpn_post_nms_train : config_proposals(c);
  if (by_batch) post = MIN(images * post, MAX_LEVELS * pre); // one image may take every slot
  m->rpn_top = graph_boxes(g, "rpn_top", images * MAX_LEVELS, pre);
  m->rpn_kept = graph_boxes(g, "rpn_kept", images * MAX_LEVELS, MIN(pre, post));
  m->proposals = graph_boxes(g, "proposals", images, post);
  append_select(network, m->rpn_top);
  append_nms(g, "rpn_nms", &(Nms){.threshold = c->rpn_nms, .extra = c->box_extra}, m->rpn_top, m->rpn_kept);
  append_merge(g, "proposals", MAX_LEVELS, m->rpn_kept, m->proposals);
  if (by_batch) append_cut(g, images * c->rpn_post_nms_train, m->proposals);
}

// ---- losses -----------------------------------------------------------------------------------------------------

typedef struct RpnMatchAttr {
  RpnMatch p;
  const Anchors *anchors;
} RpnMatchAttr;

// Inputs: images, truth.
static void match_forward(Graph *g, Node *n) {
  const RpnMatchAttr *a = NODE_ATTR(n, RpnMatchAttr);
  g->dev->ops->rpn_match(g->dev, &a->p, a->anchors, n->in[0].v->images.info, &n->in[1].v->truth,
                         &n->out[0]->rpn_targets);
}
static const NodeType match_node = {
    .name = "rpn_match", .attr_size = sizeof(RpnMatchAttr), .forward = match_forward, .beside = true};

typedef struct RpnLossAttr {
  RpnLoss p;
  const Anchors *anchors;
} RpnLossAttr;

static void loss_forward(Graph *g, Node *n) {
  const RpnLossAttr *a = NODE_ATTR(n, RpnLossAttr);
  const HeadOutputs x = head_outputs(n, a->anchors->per_cell, false);
  const Tensor loss = loss_slice(n->out[0], LOSS_OBJECTNESS, 2);
  g->dev->ops->rpn_loss(g->dev, &a->p, a->anchors, &last_input(n)->rpn_targets, x.logits, x.deltas, &loss);
}

static void loss_backward(Graph *g, Node *n) {
  const RpnLossAttr *a = NODE_ATTR(n, RpnLossAttr);
  const HeadOutputs x = head_outputs(n, a->anchors->per_cell, false), dx = head_outputs(n, a->anchors->per_cell, true);
  expect_plain_gradients(n);
  g->dev->ops->rpn_loss_backward(g->dev, &a->p, a->anchors, &last_input(n)->rpn_targets, x.logits, x.deltas,
                                 g->loss_scale, dx.logits, dx.deltas);
}

static const NodeType loss_node = {.name = "rpn_loss",
                                   .attr_size = sizeof(RpnLossAttr),
                                   .forward = loss_forward,
                                   .backward = loss_backward,
                                   .source = true,
                                   .reads_in = true,
                                   .gathers = true};

// Before proposals: they are made beside, in this order, and the losses wait for the matches alone.
static void build_targets(Network *network) {
  Graph *g = &network->graph;
  Rcnn *m = rcnn_of(network);
  const ModelConfig *c = &network->config;
  m->rpn_targets = graph_rpn_targets(g, "rpn_targets", network->images, c->rpn_batch);
  Node *match = graph_node(g, &match_node, "rpn_match");
  *NODE_ATTR(match, RpnMatchAttr) = (RpnMatchAttr){.p = {.high = c->rpn_high,
                                                         .low = c->rpn_low,
                                                         .low_quality = c->rpn_low_quality,
                                                         .inside = c->rpn_inside,
                                                         .batch = c->rpn_batch,
                                                         .positive = c->rpn_positive,
                                                         .coder = rpn_coder(c)},
                                                   .anchors = &m->anchors};
  node_in(match, network->input, FLOW_NONE);
  node_in(match, network->truth, FLOW_NONE);
  node_out(match, m->rpn_targets);
}

// Inputs: P2 … P6, targets.
static void patches_forward(Graph *g, Node *n) {
  Tensor x[MAX_LEVELS];
  for (int l = 0; l < MAX_LEVELS; l++) x[l] = n->in[l].v->x;
  g->dev->ops->rpn_patches(g->dev, *NODE_ATTR(n, const Anchors *), &last_input(n)->rpn_targets, x, &n->out[0]->x);
}

static void patches_backward(Graph *g, Node *n) {
  Dest dx[MAX_LEVELS];
  for (int l = 0; l < MAX_LEVELS; l++) {
    CHECK(n->in[l].wanted);
    dx[l] = node_dest(n, l);
  }
  g->dev->ops->rpn_patches_backward(g->dev, *NODE_ATTR(n, const Anchors *), &last_input(n)->rpn_targets, &n->out[0]->dx,
                                    dx);
}

static const NodeType patches_node = {.name = "rpn_patches",
                                      .attr_size = sizeof(const Anchors *),
                                      .forward = patches_forward,
                                      .backward = patches_backward,
                                      .gathers = true};

// The head once more, at the cells of sampled anchors alone: only there do the losses have a gradient.
static Value *append_sampled_head(Network *network) {
  Graph *g = &network->graph;
  const Rcnn *m = rcnn_of(network);
  const int rows = network->images * network->config.rpn_batch;
  Node *n = graph_node(g, &patches_node, "rpn_patches");
  *NODE_ATTR(n, const Anchors *) = &m->anchors;
  Value *x = graph_value(g, "rpn_patches", tensor(g->act, rows, 3, 3, m->p[0]->x.c));
  for (int l = 0; l < MAX_LEVELS; l++) node_in(n, m->p[l], FLOW_DENSE);
  node_in(n, m->rpn_targets, FLOW_NONE);
  node_out(n, x);
  HeadLayers head = head_layers(network);
  head.hidden.pad = 0;
  x = layer_conv(g, head.hidden_name, x, &head.hidden);
  g->node[g->nodes - 1]->name = "rpn_patches.conv";
  x = layer_conv(g, head.output_name, x, &head.output);
  g->node[g->nodes - 1]->name = "rpn_patches.outputs";
  return x;
}

static void build_losses(Network *network) {
  Graph *g = &network->graph;
  const Rcnn *m = rcnn_of(network);
  const ModelConfig *c = &network->config;
  const bool sampled = samples_head(network);
  Value *outputs = sampled ? append_sampled_head(network) : NULL;
  Node *loss = graph_node(g, &loss_node, "rpn_loss");
  *NODE_ATTR(loss, RpnLossAttr) = (RpnLossAttr){
      .p = {.beta = c->rpn_beta, .by_batch = c->rpn_loss_by_batch, .sampled = sampled}, .anchors = &m->anchors};
  for (int l = 0; l < MAX_LEVELS; l++)
    if (!sampled || l == 0) node_in(loss, sampled ? outputs : m->rpn_outputs[l], FLOW_DENSE);
  node_in(loss, m->rpn_targets, FLOW_NONE);
  node_out(loss, network->losses);
}

// ---- building ---------------------------------------------------------------------------------------------------

static void make_anchors(Network *n) {
  Rcnn *m = rcnn_of(n);
  const ModelConfig *c = &n->config;
  AnchorShapes shapes = {.sizes = 1, .ratios = COUNT(c->anchor_ratio), .type = c->anchor_kind};
  int grid_h[MAX_LEVELS], grid_w[MAX_LEVELS];
  for (int l = 0; l < MAX_LEVELS; l++) {
    shapes.size[l][0] = c->anchor_size[l];
    shapes.stride[l] = c->anchor_grid_stride ? 0 : 4 << l;
    grid_h[l] = m->p[l]->x.h;
    grid_w[l] = m->p[l]->x.w;
  }
  for (int i = 0; i < shapes.ratios; i++) shapes.ratio[i] = c->anchor_ratio[i];
  anchors_init(&m->anchors, &shapes, MAX_LEVELS, grid_h, grid_w, n->canvas_h, n->canvas_w);
}

static void build_head(Network *n) {
  Graph *g = &n->graph;
  Rcnn *m = rcnn_of(n);
  HeadLayers head = head_layers(n);
  Value *hidden[MAX_LEVELS];
  head.hidden.detached = head.output.detached = samples_head(n);
  layer_conv_shared(g, head.hidden_name, MAX_LEVELS, m->p, hidden, &head.hidden);
  layer_conv_shared(g, head.output_name, MAX_LEVELS, hidden, m->rpn_outputs, &head.output);
}

void rpn_build(Network *n) {
  make_anchors(n);
  build_head(n);
  if (n->purpose != FOR_INFERENCE) build_targets(n);
  build_proposals(n);
  if (n->purpose != FOR_INFERENCE) build_losses(n);
}
