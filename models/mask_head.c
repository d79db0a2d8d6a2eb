// The mask head over the RoIs of objects: sampled ones in training, detections in inference.
#include "models/rcnn.h"
#include "nn/layers.h"

// ---- loss -----------------------------------------------------------------------------------------------------------

// Inputs: images, truth, objects, their targets.
static void mask_target_forward(Graph *g, Node *n) {
  RoiTargets t = roi_targets(NULL, NULL, n->in[2].v, n->in[3].v);
  g->dev->ops->mask_target(g->dev, NODE_ATTR(n, MaskTarget), n->in[0].v->images.info, &n->in[1].v->truth, &t,
                           &n->out[0]->x);
}
static const NodeType mask_target_node = {
    .name = "mask_target", .attr_size = sizeof(MaskTarget), .forward = mask_target_forward, .beside = true};

// Inputs: mask logits, mask targets, objects, their targets.
static void mask_loss_forward(Graph *g, Node *n) {
  RoiTargets t = roi_targets(NULL, NULL, n->in[2].v, n->in[3].v);
  Tensor loss = loss_slice(n->out[0], LOSS_MASK, 1);
  g->dev->ops->mask_loss(g->dev, &t, &n->in[0].v->x, &n->in[1].v->x, &loss);
}

static void mask_loss_backward(Graph *g, Node *n) {
  RoiTargets t = roi_targets(NULL, NULL, n->in[2].v, n->in[3].v);
  expect_plain_gradients(n);
  g->dev->ops->mask_loss_backward(g->dev, &t, &n->in[0].v->x, &n->in[1].v->x, g->loss_scale, &n->in[0].v->dx);
}
static const NodeType mask_loss_node = {.name = "mask_loss",
                                        .forward = mask_loss_forward,
                                        .backward = mask_loss_backward,
                                        .source = true,
                                        .reads_in = true,
                                        .gathers = true};

static void append_mask_loss(Network *network) {
  Graph *g = &network->graph;
  Rcnn *m = rcnn_of(network);
  const ModelConfig *c = &network->config;
  m->mask_target = mask_value(g, "mask_target", m->mask_logits, 1);
  Node *target = graph_node(g, &mask_target_node, "mask_target");
  *NODE_ATTR(target, MaskTarget) =
      (MaskTarget){.size = m->mask_target->x.h, .source = c->mask_source, .least_side = c->mask_least_side};
  node_in(target, network->input, FLOW_NONE);
  node_in(target, network->truth, FLOW_NONE);
  node_in(target, m->objects, FLOW_NONE);
  node_in(target, m->object_targets, FLOW_NONE);
  node_out(target, m->mask_target);
  Node *loss = graph_node(g, &mask_loss_node, "mask_loss");
  node_in(loss, m->mask_logits, FLOW_DENSE);
  node_in(loss, m->mask_target, FLOW_NONE);
  node_in(loss, m->objects, FLOW_NONE);
  node_in(loss, m->object_targets, FLOW_NONE);
  node_out(loss, network->losses);
}

// ---- building -------------------------------------------------------------------------------------------------------

static Value *hidden_layers(Network *n) {
  Graph *g = &n->graph;
  const ModelConfig *c = &n->config;
  Value *x = append_align(n, "mask_roi_align", rcnn_of(n)->objects, c->mask_pool);
  const ConvLayer conv = conv_3x3(c->mask_dim, INIT_KAIMING_NORMAL, INIT_ZERO);
  for (int i = 0; i < c->mask_layers; i++) x = layer_conv(g, graph_name(g, "roi_heads.mask_head.%d.0", i), x, &conv);
  return x;
}

void mask_head_build(Network *n) {
  Value *x = hidden_layers(n);
  if (n->purpose == FOR_INFERENCE) {
    append_mask_probs(n, x);
    n->result[DETECTED_MASKS] = rcnn_of(n)->mask_probs;
  } else {
    append_object_logits(n, x);
    append_mask_loss(n);
  }
}
