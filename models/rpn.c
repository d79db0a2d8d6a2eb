// Region proposal network: Ren, He, Girshick, Sun, "Faster R-CNN", 2015.
#include <math.h>
#include "models/anchors.h"
#include "models/maskrcnn.h"
#include "nn/layers.h"

static BoxCoder rpn_coder(const ModelConfig *c) {
  return (BoxCoder){.weight = {1, 1, 1, 1}, .clamp = logf(1000.f / 16), .extra = c->box_extra};
}

static void gather(const Node *n, int first, bool grads, Tensor *t) {
  for (int l = 0; l < MAX_LEVELS; l++) t[l] = grads ? n->in[first + l].v->dx : n->in[first + l].v->x;
}

// ---- proposals --------------------------------------------------------------------------------------------------

// Whether the proposals of all images compete for the same places.
static bool post_nms_of_batch(const MaskRcnn *m) { return m->graph.training && m->config.rpn_post_nms_by_batch; }

static void proposals_forward(Graph *g, Node *n) {
  const MaskRcnn *m = *NODE_ATTR(n, MaskRcnn *);
  const ModelConfig *c = &m->config;
  Tensor logits[MAX_LEVELS], deltas[MAX_LEVELS];
  gather(n, 0, false, logits);
  gather(n, MAX_LEVELS, false, deltas);
  RpnSelect select = {.coder = rpn_coder(c), .min_size = c->rpn_min_size, .min_score = c->rpn_min_score};
  g->dev->ops->rpn_select(g->dev, &select, &m->anchors, m->info, logits, deltas, &m->rpn_top);
  Nms nms = {.threshold = c->rpn_nms, .extra = c->box_extra};
  g->dev->ops->nms(g->dev, &nms, &m->rpn_top, &m->rpn_kept);
  g->dev->ops->boxes_merge(g->dev, MAX_LEVELS, &m->rpn_kept, &m->proposals);
  if (post_nms_of_batch(m)) g->dev->ops->boxes_cut(g->dev, m->images * c->rpn_post_nms_train, &m->proposals);
}

static const NodeKind proposals_kind = {.name = "proposals", .forward = proposals_forward, .gathers = true};

// ---- losses -----------------------------------------------------------------------------------------------------

static Tensor rpn_losses(const MaskRcnn *m) {
  Tensor t = tensor_packed(m->loss.dtype, 1, 2);
  t.data = (char *)m->loss.data + LOSS_OBJECTNESS * dtype_size(t.dtype);
  return t;
}

static RpnLoss loss_params(const ModelConfig *c) {
  return (RpnLoss){.beta = c->rpn_beta, .by_batch = c->rpn_loss_by_batch};
}

static void loss_forward(Graph *g, Node *n) {
  const MaskRcnn *m = *NODE_ATTR(n, MaskRcnn *);
  const ModelConfig *c = &m->config;
  Tensor logits[MAX_LEVELS], deltas[MAX_LEVELS], loss = rpn_losses(m);
  gather(n, 0, false, logits);
  gather(n, MAX_LEVELS, false, deltas);
  RpnMatch match = {.high = c->rpn_high,
                    .low = c->rpn_low,
                    .low_quality = c->rpn_low_quality,
                    .inside = c->rpn_inside,
                    .batch = c->rpn_batch,
                    .positive = c->rpn_positive,
                    .coder = rpn_coder(c)};
  g->dev->ops->rpn_match(g->dev, &match, &m->anchors, m->info, &m->truth, &m->rpn_targets);
  RpnLoss p = loss_params(c);
  g->dev->ops->rpn_loss(g->dev, &p, &m->anchors, &m->rpn_targets, logits, deltas, &loss);
}

static void loss_backward(Graph *g, Node *n) {
  const MaskRcnn *m = *NODE_ATTR(n, MaskRcnn *);
  Tensor logits[MAX_LEVELS], deltas[MAX_LEVELS], dlogits[MAX_LEVELS], ddeltas[MAX_LEVELS];
  gather(n, 0, false, logits);
  gather(n, MAX_LEVELS, false, deltas);
  gather(n, 0, true, dlogits);
  gather(n, MAX_LEVELS, true, ddeltas);
  for (int i = 0; i < n->ins; i++) CHECK(n->in[i].wanted && !n->in[i].accumulate && !n->in[i].addend);
  RpnLoss p = loss_params(&m->config);
  g->dev->ops->rpn_loss_backward(g->dev, &p, &m->anchors, &m->rpn_targets, logits, deltas, m->loss_scale, dlogits,
                                 ddeltas);
}

static const NodeKind loss_kind = {.name = "rpn_loss",
                                   .forward = loss_forward,
                                   .backward = loss_backward,
                                   .source = true,
                                   .reads_in = true,
                                   .gathers = true};

// ---- building ---------------------------------------------------------------------------------------------------

static void make_anchors(MaskRcnn *m) {
  const ModelConfig *c = &m->config;
  AnchorShapes shapes = {.sizes = 1, .ratios = COUNT(c->anchor_ratio), .kind = c->anchor_kind};
  int grid_h[MAX_LEVELS], grid_w[MAX_LEVELS];
  for (int l = 0; l < MAX_LEVELS; l++) {
    shapes.size[l][0] = c->anchor_size[l];
    shapes.stride[l] = c->anchor_grid_stride ? 0 : 4 << l;
    grid_h[l] = m->p[l]->x.h, grid_w[l] = m->p[l]->x.w;
  }
  for (int i = 0; i < shapes.ratios; i++) shapes.ratio[i] = c->anchor_ratio[i];
  anchors_init(&m->anchors, &shapes, MAX_LEVELS, grid_h, grid_w, m->canvas_h, m->canvas_w);
}

static Node *append(MaskRcnn *m, const NodeKind *kind, const char *name, Flow flow) {
  Node *n = graph_node(&m->graph, kind, name);
  *NODE_ATTR(n, MaskRcnn *) = m;
  for (int l = 0; l < MAX_LEVELS; l++) node_in(n, m->logits[l], flow);
  for (int l = 0; l < MAX_LEVELS; l++) node_in(n, m->deltas[l], flow);
  return n;
}

void rpn_build(MaskRcnn *m) {
  Graph *g = &m->graph;
  const ModelConfig *c = &m->config;
  make_anchors(m);
  ConvLayer conv = {.k = c->fpn_channels,
                    .r = 3,
                    .s = 3,
                    .stride = 1,
                    .pad = 1,
                    .relu = true,
                    .bias = true,
                    .trainable = true,
                    .init = INIT_NORMAL_001,
                    .bias_init = INIT_ZERO};
  ConvLayer output = conv;
  output.r = output.s = 1, output.pad = 0, output.relu = false;
  Value *hidden[MAX_LEVELS];
  layer_conv_shared(g, "rpn.head.conv.0.0", MAX_LEVELS, m->p, hidden, &conv);
  output.k = m->anchors.per_cell;
  layer_conv_shared(g, "rpn.head.cls_logits", MAX_LEVELS, hidden, m->logits, &output);
  output.k = 4 * m->anchors.per_cell;
  layer_conv_shared(g, "rpn.head.bbox_pred", MAX_LEVELS, hidden, m->deltas, &output);

  bool training = g->training;
  int pre = training ? c->rpn_pre_nms_train : c->rpn_pre_nms_test;
  int post = training ? c->rpn_post_nms_train : c->rpn_post_nms_test;
  boxes_memory(g, "rpn_top", &m->rpn_top, m->images * MAX_LEVELS, pre);
  if (post_nms_of_batch(m)) post = MIN(m->images * post, MAX_LEVELS * pre); // one image may take every place
  boxes_memory(g, "rpn_kept", &m->rpn_kept, m->images * MAX_LEVELS, MIN(pre, post));
  boxes_memory(g, "proposals", &m->proposals, m->images, post);
  append(m, &proposals_kind, "proposals", FLOW_NONE);
  if (!training) return;

  RpnTargets *t = &m->rpn_targets;
  int rows = m->images * c->rpn_batch;
  *t = (RpnTargets){.images = m->images, .batch = c->rpn_batch, .delta = tensor_packed(g->dev->real, rows, 4)};
  graph_memory(g, "rpn_targets", (size_t)rows * sizeof(int), &t->index);
  graph_memory(g, "rpn_targets", (size_t)m->images * sizeof(int), &t->positives);
  graph_memory(g, "rpn_targets", (size_t)m->images * sizeof(int), &t->count);
  graph_memory(g, "rpn_targets", tensor_bytes(&t->delta), &t->delta.data);
  append(m, &loss_kind, "rpn_loss", FLOW_DENSE);
}
