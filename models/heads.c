// The second stage without masks: the box head over RoIs, its loss, and the detections.
#include <math.h>
#include "models/rcnn.h"
#include "nn/layers.h"

enum { ROI_LEVELS = 4 }; // P2 … P5

static BoxCoder head_coder(const ModelConfig *c) {
  return (BoxCoder){.weight = {c->box_weight[0], c->box_weight[1], c->box_weight[2], c->box_weight[3]},
                    .clamp = logf(1000.f / 16),
                    .extra = c->box_extra};
}

// ---- RoIs -------------------------------------------------------------------------------------------------------

RoiTargets roi_targets(const Value *rois, const Value *box, const Value *objects, const Value *object) {
  RoiTargets t = {0};
  if (rois) t.rois = rois->rois;
  if (box) {
    t.label = box->box_targets.label;
    t.delta = box->box_targets.delta;
  }
  if (objects) t.objects = objects->rois;
  if (object) {
    t.object_label = object->object_targets.label;
    t.object_truth = object->object_targets.truth;
  }
  return t;
}

static void sample_forward(Graph *g, Node *n) {
  RoiTargets t = roi_targets(n->out[0], n->out[1], n->out[2], n->out[3]);
  g->dev->ops->roi_sample(g->dev, NODE_ATTR(n, RoiSample), n->in[0].v->images.info, &n->in[1].v->boxes,
                          &n->in[2].v->truth, &t);
}
// Inputs: images, proposals, truth. Outputs: RoIs, their targets, the objects among them, theirs.
static const NodeType sample_node = {.name = "roi_sample",
                                     .attr_size = sizeof(RoiSample),
                                     .forward = sample_forward,
                                     .beside = true,
                                     .lent = PROPOSALS_LENT};

static void append_sample(Network *network, const char *name, const RoiSample *p, Value *rois, Value *box_targets) {
  const Rcnn *m = rcnn_of(network);
  Node *n = graph_node(&network->graph, &sample_node, name);
  *NODE_ATTR(n, RoiSample) = *p;
  node_in(n, network->input, FLOW_NONE);
  node_in(n, m->proposals, FLOW_NONE);
  node_in(n, network->truth, FLOW_NONE);
  node_out(n, rois);
  node_out(n, box_targets);
  node_out(n, m->objects);
  node_out(n, m->object_targets);
}

static void sample_rois(Network *network) {
  Graph *g = &network->graph;
  Rcnn *m = rcnn_of(network);
  const ModelConfig *c = &network->config;
  const int rois = network->images * c->roi_batch;
  const int objects = MAX(network->images * (int)((float)c->roi_batch * c->roi_positive), 1);
  RoiSample p = {.high = c->roi_high,
                 .low = c->roi_low,
                 .batch = c->roi_batch,
                 .positive = c->roi_positive,
                 .coder = head_coder(c)};
  m->rois = graph_rois(g, "rois", rois);
  m->box_targets = graph_box_targets(g, "box_targets", rois);
  m->objects = graph_rois(g, "objects", objects);
  m->object_targets = graph_object_targets(g, "object_targets", objects);
  append_sample(network, "roi_sample", &p, m->rois, m->box_targets);
  if (!c->full_masks) return;
  // Once more with every candidate an object, whatever its IoU: these objects take the place of the sampled ones; what
  // goes with them is not read.
  p.high = p.low = 0;
  append_sample(network, "roi_sample_full", &p, graph_rois(g, "unread_rois", rois),
                graph_box_targets(g, "unread_targets", rois));
}

static void compact_forward(Graph *g, Node *n) {
  g->dev->ops->rois_compact(g->dev, &n->in[0].v->boxes, &n->out[0]->rois);
}
static const NodeType compact_node = {.name = "rois_compact", .forward = compact_forward};

static void append_compact(Graph *g, const char *name, Value *boxes, Value *rois) {
  Node *n = graph_node(g, &compact_node, name);
  node_in(n, boxes, FLOW_NONE);
  node_out(n, rois);
}

// ---- RoIAlign ---------------------------------------------------------------------------------------------------

// Inputs: the pyramid's levels, RoIs.
static void align_forward(Graph *g, Node *n) {
  Tensor x[ROI_LEVELS];
  for (int l = 0; l < ROI_LEVELS; l++) x[l] = n->in[l].v->x;
  g->dev->ops->roi_align_forward(g->dev, NODE_ATTR(n, RoiAlign), &n->in[ROI_LEVELS].v->rois, x, &n->out[0]->x);
}

static void align_backward(Graph *g, Node *n) {
  Dest dx[ROI_LEVELS];
  for (int l = 0; l < ROI_LEVELS; l++) dx[l] = node_dest(n, l);
  g->dev->ops->roi_align_backward(g->dev, NODE_ATTR(n, RoiAlign), &n->in[ROI_LEVELS].v->rois, &n->out[0]->dx, dx);
}
static const NodeType align_node = {.name = "roi_align",
                                    .attr_size = sizeof(RoiAlign),
                                    .forward = align_forward,
                                    .backward = align_backward,
                                    .gathers = true};

Value *append_align(Network *network, const char *name, Value *rois, int size) {
  Graph *g = &network->graph;
  const Rcnn *m = rcnn_of(network);
  const ModelConfig *c = &network->config;
  Node *n = graph_node(g, &align_node, name);
  RoiAlign *p = NODE_ATTR(n, RoiAlign);
  *p = (RoiAlign){.size = size,
                  .sampling = c->roi_sampling,
                  .aligned = c->roi_aligned,
                  .levels = ROI_LEVELS,
                  .first_level = 2,
                  .canonical_size = c->roi_canonical_size,
                  .canonical_level = 4,
                  .size_eps = c->roi_size_eps,
                  .level_eps = c->roi_level_eps,
                  .extra = c->box_extra};
  for (int l = 0; l < ROI_LEVELS; l++) {
    p->scale[l] = 1.f / (float)(4 << l);
    node_in(n, m->p[l], FLOW_DENSE);
  }
  node_in(n, rois, FLOW_NONE);
  Value *y = graph_value(g, name, tensor(g->act, rois->rois.capacity, size, size, c->fpn_channels));
  y->rows = rois;
  node_out(n, y);
  return y;
}

// ---- box head ---------------------------------------------------------------------------------------------------

typedef struct BoxLossAttr {
  float beta;
} BoxLossAttr;

// Inputs: class logits, box deltas, RoIs, their targets.
static void box_loss_forward(Graph *g, Node *n) {
  RoiTargets t = roi_targets(n->in[2].v, n->in[3].v, NULL, NULL);
  Tensor loss = loss_slice(n->out[0], LOSS_CLASSIFIER, 2);
  g->dev->ops->box_loss(g->dev, NODE_ATTR(n, BoxLossAttr)->beta, &t, &n->in[0].v->x, &n->in[1].v->x, &loss);
}

static void box_loss_backward(Graph *g, Node *n) {
  RoiTargets t = roi_targets(n->in[2].v, n->in[3].v, NULL, NULL);
  expect_plain_gradients(n);
  g->dev->ops->box_loss_backward(g->dev, NODE_ATTR(n, BoxLossAttr)->beta, &t, &n->in[0].v->x, &n->in[1].v->x,
                                 g->loss_scale, &n->in[0].v->dx, &n->in[1].v->dx);
}
static const NodeType box_loss_node = {.name = "box_loss",
                                       .attr_size = sizeof(BoxLossAttr),
                                       .forward = box_loss_forward,
                                       .backward = box_loss_backward,
                                       .source = true,
                                       .reads_in = true,
                                       .gathers = true};

static Value *connected(Graph *g, const char *name, Value *x, int k, bool relu) {
  return layer_dense(g, name, x, &(Dense){.k = k, .relu = relu, .init = INIT_LINEAR, .bias_init = INIT_LINEAR});
}

static void box_head(Network *n) {
  Graph *g = &n->graph;
  Rcnn *m = rcnn_of(n);
  const ModelConfig *c = &n->config;
  Value *x = append_align(n, "box_roi_align", m->rois, c->box_pool);
  x = connected(g, "roi_heads.box_head.fc6", x, c->box_dim, true);
  x = connected(g, "roi_heads.box_head.fc7", x, c->box_dim, true);
  m->class_logits = connected(g, "roi_heads.box_predictor.cls_score", x, c->classes, false);
  m->box_deltas = connected(g, "roi_heads.box_predictor.bbox_pred", x, 4 * c->classes, false);
}

static void append_box_loss(Network *network) {
  const Rcnn *m = rcnn_of(network);
  Node *n = graph_node(&network->graph, &box_loss_node, "box_loss");
  NODE_ATTR(n, BoxLossAttr)->beta = network->config.box_beta;
  node_in(n, m->class_logits, FLOW_DENSE);
  node_in(n, m->box_deltas, FLOW_DENSE);
  node_in(n, m->rois, FLOW_NONE);
  node_in(n, m->box_targets, FLOW_NONE);
  node_out(n, network->losses);
}

// ---- detections -------------------------------------------------------------------------------------------------

typedef struct DetectAttr {
  Detect p;
  int images;
} DetectAttr;

// Inputs: class logits, box deltas, RoIs, images.
static void detect_forward(Graph *g, Node *n) {
  const DetectAttr *a = NODE_ATTR(n, DetectAttr);
  g->dev->ops->detect_select(g->dev, &a->p, n->in[3].v->images.info, a->images, &n->in[2].v->rois, &n->in[0].v->x,
                             &n->in[1].v->x, &n->out[0]->boxes);
}
static const NodeType detect_node = {
    .name = "detect_select", .attr_size = sizeof(DetectAttr), .forward = detect_forward, .gathers = true};

static void append_detect(Network *network, Value *out) {
  const Rcnn *m = rcnn_of(network);
  const ModelConfig *c = &network->config;
  Node *n = graph_node(&network->graph, &detect_node, "detect_select");
  *NODE_ATTR(n, DetectAttr) = (DetectAttr){
      .p = {.coder = head_coder(c), .min_score = c->min_score, .min_size = c->min_size}, .images = network->images};
  node_in(n, m->class_logits, FLOW_NONE);
  node_in(n, m->box_deltas, FLOW_NONE);
  node_in(n, m->rois, FLOW_NONE);
  node_in(n, network->input, FLOW_NONE);
  node_out(n, out);
}

static void build_detections(Network *n) {
  Graph *g = &n->graph;
  Rcnn *m = rcnn_of(n);
  const ModelConfig *c = &n->config;
  const int classes = c->classes - 1, groups = n->images * classes; // of objects
  m->class_top = graph_boxes(g, "class_top", groups, config_proposals(c));
  m->class_kept = graph_boxes(g, "class_kept", groups, c->detections);
  m->detections = graph_boxes(g, "detections", n->images, c->detections);
  m->objects = graph_rois(g, "objects", n->images * c->detections);
  append_detect(n, m->class_top);
  append_nms(g, "class_nms", &(Nms){.threshold = c->nms, .extra = c->box_extra}, m->class_top, m->class_kept);
  append_merge(g, "detections", classes, m->class_kept, m->detections);
  append_compact(g, "objects", m->detections, m->objects);
}

// ---- building ---------------------------------------------------------------------------------------------------

static void build_losses(Network *n) {
  sample_rois(n);
  box_head(n);
  append_box_loss(n);
}

static void build_inference(Network *n) {
  Graph *g = &n->graph;
  Rcnn *m = rcnn_of(n);
  m->rois = graph_rois(g, "rois", n->images * config_proposals(&n->config));
  append_compact(g, "rois_compact", m->proposals, m->rois);
  box_head(n);
  build_detections(n);
  n->result[DETECTED_BOXES] = m->detections;
}

void box_head_build(Network *n) {
  const Rcnn *m = rcnn_of(n);
  (n->purpose == FOR_INFERENCE ? build_inference : build_losses)(n);
  n->counter[COUNT_ROIS] = &m->rois->rois.count;
  n->counter[COUNT_POSITIVES] = &m->objects->rois.count;
}
