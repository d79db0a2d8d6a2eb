// The second stage: box head and mask head over RoIs, their losses, and the detections.
#include <math.h>
#include "models/maskrcnn.h"
#include "nn/layers.h"

enum { ROI_LEVELS = 4 }; // P2 … P5

static BoxCoder head_coder(const ModelConfig *c) {
  return (BoxCoder){.weight = {c->box_weight[0], c->box_weight[1], c->box_weight[2], c->box_weight[3]},
                    .clamp = logf(1000.f / 16),
                    .extra = c->box_extra};
}

static const MaskRcnn *model_of(const Node *n) { return *NODE_ATTR(n, MaskRcnn *); }

static Node *append(MaskRcnn *m, const NodeKind *kind, const char *name) {
  Node *n = graph_node(&m->graph, kind, name);
  *NODE_ATTR(n, MaskRcnn *) = m;
  return n;
}

static Tensor loss_slice(const MaskRcnn *m, Loss first, int n) {
  Tensor t = tensor_packed(m->loss.dtype, 1, n);
  if (m->loss.data) t.data = (char *)m->loss.data + (size_t)first * dtype_size(t.dtype); // none while measuring
  return t;
}

static void expect_plain(const Node *n, int inputs) {
  for (int i = 0; i < inputs; i++) CHECK(n->in[i].wanted && !n->in[i].accumulate && !n->in[i].addend);
}

// ---- RoIs -------------------------------------------------------------------------------------------------------

// Once more with every candidate an object, whatever its IoU: these objects take the place of the sampled ones, what
// goes with them is not read.
static void fill_objects(Graph *g, const MaskRcnn *m, RoiSample p) {
  RoiTargets out = m->unread_targets;
  out.objects = m->roi_targets.objects;
  out.object_label = m->roi_targets.object_label, out.object_truth = m->roi_targets.object_truth;
  p.high = p.low = 0;
  g->dev->ops->roi_sample(g->dev, &p, m->info, &m->proposals, &m->truth, &out);
}

static void sample_forward(Graph *g, Node *n) {
  const MaskRcnn *m = model_of(n);
  const ModelConfig *c = &m->config;
  RoiSample p = {.high = c->roi_high,
                 .low = c->roi_low,
                 .batch = c->roi_batch,
                 .positive = c->roi_positive,
                 .coder = head_coder(c)};
  g->dev->ops->roi_sample(g->dev, &p, m->info, &m->proposals, &m->truth, &m->roi_targets);
  if (c->full_masks) fill_objects(g, m, p);
}
static const NodeKind sample_kind = {.name = "roi_sample", .forward = sample_forward};

static void compact_forward(Graph *g, Node *n) {
  const MaskRcnn *m = model_of(n);
  g->dev->ops->rois_compact(g->dev, &m->proposals, &m->rois);
}
static const NodeKind compact_kind = {.name = "rois_compact", .forward = compact_forward};

static void rois_memory(Graph *g, const char *name, Rois *r, int capacity) {
  *r = (Rois){.capacity = capacity, .box = tensor_packed(g->dev->real, capacity, 4)};
  graph_memory(g, name, tensor_bytes(&r->box), &r->box.data);
  graph_memory(g, name, (size_t)capacity * sizeof(int), &r->image);
  graph_memory(g, name, sizeof(int), &r->count);
}

// ---- RoIAlign ---------------------------------------------------------------------------------------------------

typedef struct AlignAttr {
  RoiAlign p;
  const Rois *rois;
} AlignAttr;

static void align_forward(Graph *g, Node *n) {
  const AlignAttr *a = NODE_ATTR(n, AlignAttr);
  Tensor x[ROI_LEVELS];
  for (int l = 0; l < ROI_LEVELS; l++) x[l] = n->in[l].v->x;
  g->dev->ops->roi_align_forward(g->dev, &a->p, a->rois, x, &n->out[0]->x);
}

static void align_backward(Graph *g, Node *n) {
  const AlignAttr *a = NODE_ATTR(n, AlignAttr);
  Dest dx[ROI_LEVELS];
  for (int l = 0; l < ROI_LEVELS; l++) dx[l] = node_dest(n, l);
  g->dev->ops->roi_align_backward(g->dev, &a->p, a->rois, &n->out[0]->dx, dx);
}
static const NodeKind align_kind = {
    .name = "roi_align", .forward = align_forward, .backward = align_backward, .gathers = true};

static Value *align(MaskRcnn *m, const char *name, const Rois *rois, int size) {
  Graph *g = &m->graph;
  const ModelConfig *c = &m->config;
  Node *n = graph_node(g, &align_kind, name);
  AlignAttr *a = NODE_ATTR(n, AlignAttr);
  *a = (AlignAttr){.p = {.size = size,
                         .sampling = c->roi_sampling,
                         .aligned = c->roi_aligned,
                         .levels = ROI_LEVELS,
                         .first_level = 2,
                         .canonical_size = c->roi_canonical_size,
                         .canonical_level = 4,
                         .size_eps = c->roi_size_eps,
                         .level_eps = c->roi_level_eps,
                         .extra = c->box_extra},
                   .rois = rois};
  for (int l = 0; l < ROI_LEVELS; l++) {
    a->p.scale[l] = 1.f / (float)(4 << l);
    node_in(n, m->p[l], FLOW_DENSE);
  }
  Value *y = graph_value(g, name, tensor(g->act, rois->capacity, size, size, c->fpn_channels));
  y->count = &rois->count;
  node_out(n, y);
  return y;
}

// ---- box head ---------------------------------------------------------------------------------------------------

static void box_loss_forward(Graph *g, Node *n) {
  const MaskRcnn *m = model_of(n);
  Tensor loss = loss_slice(m, LOSS_CLASSIFIER, 2);
  g->dev->ops->box_loss(g->dev, m->config.box_beta, &m->roi_targets, &n->in[0].v->x, &n->in[1].v->x, &loss);
}

static void box_loss_backward(Graph *g, Node *n) {
  const MaskRcnn *m = model_of(n);
  expect_plain(n, 2);
  g->dev->ops->box_loss_backward(g->dev, m->config.box_beta, &m->roi_targets, &n->in[0].v->x, &n->in[1].v->x,
                                 m->loss_scale, &n->in[0].v->dx, &n->in[1].v->dx);
}
static const NodeKind box_loss_kind = {.name = "box_loss",
                                       .forward = box_loss_forward,
                                       .backward = box_loss_backward,
                                       .source = true,
                                       .reads_in = true,
                                       .gathers = true};

static Value *connected(Graph *g, const char *name, Value *x, int k, bool relu) {
  return layer_conv(g, name, x,
                    &(ConvLayer){.k = k,
                                 .r = x->x.h,
                                 .s = x->x.w,
                                 .stride = 1,
                                 .connected = true,
                                 .relu = relu,
                                 .bias = true,
                                 .trainable = true,
                                 .init = INIT_LINEAR,
                                 .bias_init = INIT_LINEAR});
}

static void box_head(MaskRcnn *m, const Rois *rois) {
  Graph *g = &m->graph;
  const ModelConfig *c = &m->config;
  Value *x = align(m, "box_roi_align", rois, c->box_pool);
  x = connected(g, "roi_heads.box_head.fc6", x, c->box_dim, true);
  x = connected(g, "roi_heads.box_head.fc7", x, c->box_dim, true);
  m->class_logits = connected(g, "roi_heads.box_predictor.cls_score", x, c->classes, false);
  m->box_deltas = connected(g, "roi_heads.box_predictor.bbox_pred", x, 4 * c->classes, false);
}

// ---- detections -------------------------------------------------------------------------------------------------

static void detect_forward(Graph *g, Node *n) {
  MaskRcnn *m = *NODE_ATTR(n, MaskRcnn *);
  const ModelConfig *c = &m->config;
  Detect p = {.coder = head_coder(c), .min_score = c->min_score, .min_size = c->min_size};
  g->dev->ops->detect_select(g->dev, &p, m->info, m->images, &m->rois, &n->in[0].v->x, &n->in[1].v->x, &m->class_top);
  Nms nms = {.threshold = c->nms, .extra = c->box_extra};
  g->dev->ops->nms(g->dev, &nms, &m->class_top, &m->class_kept);
  g->dev->ops->boxes_merge(g->dev, c->classes - 1, &m->class_kept, &m->detections);
  g->dev->ops->rois_compact(g->dev, &m->detections, &m->mask_rois);
}
static const NodeKind detect_kind = {.name = "detect", .forward = detect_forward, .gathers = true};

static void mask_select_forward(Graph *g, Node *n) {
  const MaskRcnn *m = model_of(n);
  g->dev->ops->mask_select(g->dev, &m->detections, &n->in[0].v->x, &n->out[0]->x);
}
static const NodeKind mask_select_kind = {.name = "mask_select", .forward = mask_select_forward, .gathers = true};

// ---- mask head --------------------------------------------------------------------------------------------------

static void mask_loss_forward(Graph *g, Node *n) {
  const MaskRcnn *m = model_of(n);
  MaskTarget p = {
      .size = m->mask_target->x.h, .source = m->config.mask_source, .least_side = m->config.mask_least_side};
  Tensor loss = loss_slice(m, LOSS_MASK, 1);
  g->dev->ops->mask_target(g->dev, &p, m->info, &m->truth, &m->roi_targets, &m->mask_target->x);
  g->dev->ops->mask_loss(g->dev, &m->roi_targets, &n->in[0].v->x, &m->mask_target->x, &loss);
}

static void mask_loss_backward(Graph *g, Node *n) {
  const MaskRcnn *m = model_of(n);
  expect_plain(n, 1);
  g->dev->ops->mask_loss_backward(g->dev, &m->roi_targets, &n->in[0].v->x, &m->mask_target->x, m->loss_scale,
                                  &n->in[0].v->dx);
}
static const NodeKind mask_loss_kind = {.name = "mask_loss",
                                        .forward = mask_loss_forward,
                                        .backward = mask_loss_backward,
                                        .source = true,
                                        .reads_in = true,
                                        .reads_out = true,
                                        .gathers = true};

static void mask_head(MaskRcnn *m, const Rois *rois) {
  Graph *g = &m->graph;
  const ModelConfig *c = &m->config;
  Value *x = align(m, "mask_roi_align", rois, c->mask_pool);
  ConvLayer conv = {.k = c->mask_dim,
                    .r = 3,
                    .s = 3,
                    .stride = 1,
                    .pad = 1,
                    .relu = true,
                    .bias = true,
                    .trainable = true,
                    .init = INIT_KAIMING_NORMAL,
                    .bias_init = INIT_ZERO};
  for (int i = 0; i < c->mask_layers; i++) x = layer_conv(g, graph_name(g, "roi_heads.mask_head.%d.0", i), x, &conv);
  conv.r = conv.s = 2, conv.stride = 2, conv.pad = 0, conv.transposed = true, conv.bias_init = INIT_LINEAR;
  x = layer_conv(g, "roi_heads.mask_predictor.conv5_mask", x, &conv);
  ConvLayer logits = {.k = c->classes,
                      .r = 1,
                      .s = 1,
                      .stride = 1,
                      .bias = true,
                      .trainable = true,
                      .init = INIT_KAIMING_NORMAL,
                      .bias_init = INIT_LINEAR};
  m->mask_logits = layer_conv(g, "roi_heads.mask_predictor.mask_fcn_logits", x, &logits);
}

// A probability or target for every pixel of the logits.
static Tensor one_channel(const Graph *g, const Value *logits) {
  Tensor t = logits->x;
  t.dtype = g->dev->real;
  t.c = t.ldc = 1;
  return t;
}

// ---- building ---------------------------------------------------------------------------------------------------

// The rows of all sampled RoIs; those of the objects are apart.
static void targets_memory(MaskRcnn *m, RoiTargets *t) {
  Graph *g = &m->graph;
  int rows = m->images * m->config.roi_batch;
  rois_memory(g, "rois", &t->rois, rows);
  t->delta = tensor_packed(g->dev->real, rows, 4);
  graph_memory(g, "roi_targets", (size_t)rows * sizeof(int), &t->label);
  graph_memory(g, "roi_targets", tensor_bytes(&t->delta), &t->delta.data);
}

static void build_training(MaskRcnn *m) {
  Graph *g = &m->graph;
  const ModelConfig *c = &m->config;
  RoiTargets *t = &m->roi_targets;
  int objects = m->images * (int)((float)c->roi_batch * c->roi_positive);
  targets_memory(m, t);
  if (c->full_masks) targets_memory(m, &m->unread_targets);
  rois_memory(g, "objects", &t->objects, MAX(objects, 1));
  graph_memory(g, "roi_targets", (size_t)t->objects.capacity * sizeof(int), &t->object_label);
  graph_memory(g, "roi_targets", (size_t)t->objects.capacity * sizeof(int), &t->object_truth);
  append(m, &sample_kind, "roi_sample");
  box_head(m, &t->rois);
  Node *loss = append(m, &box_loss_kind, "box_loss");
  node_in(loss, m->class_logits, FLOW_DENSE);
  node_in(loss, m->box_deltas, FLOW_DENSE);
  mask_head(m, &t->objects);
  m->mask_target = graph_value(g, "mask_target", one_channel(g, m->mask_logits));
  m->mask_target->count = m->mask_logits->count;
  loss = append(m, &mask_loss_kind, "mask_loss");
  node_in(loss, m->mask_logits, FLOW_DENSE);
  node_out(loss, m->mask_target);
}

static void build_inference(MaskRcnn *m) {
  Graph *g = &m->graph;
  const ModelConfig *c = &m->config;
  rois_memory(g, "rois", &m->rois, m->images * c->rpn_post_nms_test);
  append(m, &compact_kind, "rois_compact");
  box_head(m, &m->rois);
  boxes_memory(g, "class_top", &m->class_top, m->images * (c->classes - 1), c->rpn_post_nms_test);
  boxes_memory(g, "class_kept", &m->class_kept, m->images * (c->classes - 1), c->detections);
  boxes_memory(g, "detections", &m->detections, m->images, c->detections);
  rois_memory(g, "mask_rois", &m->mask_rois, m->images * c->detections);
  Node *detect = append(m, &detect_kind, "detect");
  node_in(detect, m->class_logits, FLOW_NONE);
  node_in(detect, m->box_deltas, FLOW_NONE);
  mask_head(m, &m->mask_rois);
  Node *select = append(m, &mask_select_kind, "mask_select");
  m->mask_probs = graph_value(g, "mask_probs", one_channel(g, m->mask_logits));
  m->mask_probs->count = m->mask_logits->count;
  m->mask_probs->keep = true;
  node_in(select, m->mask_logits, FLOW_NONE);
  node_out(select, m->mask_probs);
}

void heads_build(MaskRcnn *m) {
  if (m->graph.training)
    build_training(m);
  else
    build_inference(m);
}
