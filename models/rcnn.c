#include "models/rcnn.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "models/fpn.h"
#include "models/resnet.h"

Rcnn *rcnn_of(const Network *n) {
  CHECK(n->model->release == rcnn_release);
  return n->parts;
}

// ---- nodes that both stages have ------------------------------------------------------------------------------------

static void nms_forward(Graph *g, Node *n) {
  g->dev->ops->nms(g->dev, NODE_ATTR(n, Nms), &n->in[0].v->boxes, &n->out[0]->boxes);
}
static const NodeType nms_node = {
    .name = "nms", .attr_size = sizeof(Nms), .forward = nms_forward, .beside = true, .lent = PROPOSALS_LENT};

void append_nms(Graph *g, const char *name, const Nms *nms, Value *in, Value *out) {
  Node *n = graph_node(g, &nms_node, name);
  *NODE_ATTR(n, Nms) = *nms;
  node_in(n, in, FLOW_NONE);
  node_out(n, out);
}

static void merge_forward(Graph *g, Node *n) {
  g->dev->ops->boxes_merge(g->dev, *NODE_ATTR(n, int), &n->in[0].v->boxes, &n->out[0]->boxes);
}
static const NodeType merge_node = {
    .name = "boxes_merge", .attr_size = sizeof(int), .forward = merge_forward, .beside = true, .lent = PROPOSALS_LENT};

void append_merge(Graph *g, const char *name, int per, Value *in, Value *out) {
  Node *n = graph_node(g, &merge_node, name);
  *NODE_ATTR(n, int) = per;
  node_in(n, in, FLOW_NONE);
  node_out(n, out);
}

Tensor loss_slice(const Value *losses, int first, int n) {
  Tensor t = tensor_packed(losses->x.dtype, 1, n);
  if (losses->x.data) t.data = (char *)losses->x.data + (size_t)first * dtype_size(t.dtype); // none while measuring
  return t;
}

void expect_plain_gradients(const Node *n) {
  for (int i = 0; i < n->ins; i++) {
    const Input *in = &n->in[i];
    CHECK(in->flow == FLOW_NONE || (in->wanted && !in->accumulate && !in->addend && !in->mask));
  }
}

// ---- the image ------------------------------------------------------------------------------------------------------

static void preprocess_forward(Graph *g, Node *n) {
  const BatchImages *images = &n->in[0].v->images;
  g->dev->ops->preprocess(g->dev, NODE_ATTR(n, Preprocess), images->info, images->bytes, &n->out[0]->x);
}
static const NodeType preprocess_node = {
    .name = "preprocess", .attr_size = sizeof(Preprocess), .forward = preprocess_forward, .recomputed = true};

static Value *image_node(Network *network) {
  Graph *g = &network->graph;
  const ModelConfig *c = &network->config;
  Node *n = graph_node(g, &preprocess_node, "image");
  Preprocess *p = NODE_ATTR(n, Preprocess);
  *p = (Preprocess){.unit = c->pixel_unit, .bgr = c->bgr, .antialias = c->antialias};
  memcpy(p->mean, c->mean, sizeof p->mean);
  memcpy(p->std, c->std, sizeof p->std);
  Value *image = graph_value(g, "image", tensor(g->act, network->images, network->canvas_h, network->canvas_w, 3));
  node_in(n, network->input, FLOW_NONE);
  node_out(n, image);
  return image;
}

// ---- for the models' rows -------------------------------------------------------------------------------------------

void rcnn_build(Network *n) {
  Graph *g = &n->graph;
  Rcnn *m = n->parts = xcalloc(1, sizeof *m);
  g->part = "input";
  m->image = image_node(n);
  g->part = "backbone";
  resnet_build(g, &n->config, "backbone.body.", m->image, m->c);
  g->part = "fpn";
  fpn_build(g, &n->config, "backbone.fpn", m->c, m->p);
  g->part = "rpn";
  rpn_build(n);
  g->part = "roi";
  box_head_build(n);
}

void rcnn_release(Network *n) { free(n->parts); }

// Kernels count the numbers of a table of boxes in int.
bool rcnn_check(const ModelConfig *c, int images, Err *err) {
  const int pre = MAX(c->rpn_pre_nms_train, config_pre_nms(c)), post = MAX(c->rpn_post_nms_train, config_proposals(c));
  const int64_t selected = (int64_t)images * MAX_LEVELS * MAX(pre, post) * 4;
  const int64_t found = (int64_t)images * c->classes * MAX(config_proposals(c), c->detections) * 4;
  const int64_t sampled = (int64_t)images * c->classes * c->roi_batch * 4;
  if (selected <= INT32_MAX && found <= INT32_MAX && sampled <= INT32_MAX) return true;
  return err_set(err,
                 "a batch of %d images of %d classes, with %d and %d proposals and %d RoIs, has too many boxes for "
                 "32-bit counters; use a smaller --batch",
                 images, c->classes, pre, post, c->roi_batch);
}

// About 0.9 million parameters for images of 128 to 256 pixels on a CPU; everything scaled down by about four.
static void make_tiny(ModelConfig *c) {
  c->size = 128;
  c->max_size = 256;
  c->width = 24;
  c->norm = NORM_GN;
  c->norm_groups = 8;
  c->trainable_layers = 5;
  c->fpn_channels = 48;
  for (int i = 0; i < MAX_LEVELS; i++) c->anchor_size[i] = (float)(12 << i);
  c->rpn_batch = 128;
  c->rpn_pre_nms_train = 200;
  c->rpn_pre_nms_test = 1000;
  c->rpn_post_nms_test = 500;
  c->box_dim = 192;
  c->roi_batch = 48;
  c->roi_canonical_size = 56;
  c->mask_dim = 48;
  c->mask_layers = 2;
}

void rcnn_configure(ModelConfig *c) {
  if (c->depth == RCNN_TINY) make_tiny(c);
  config_conventions(c, CONVENTIONS_TORCHVISION);         // which depend on the size
  if (c->depth == RCNN_TINY) c->rpn_post_nms_train = 200; // more take time and sample the same 48 RoIs
}

// Without published statistics there is nothing to freeze. torchvision's targets are half a pixel off, and it pastes
// masks over whole pixels: with the true boxes and masks of small nuclei that leaves a mean IoU of 0.88, aligned
// targets and exact pasting 1.00 (results/mask-bounds-cpu.txt). Weights keep what they were trained with.
void rcnn_train(ModelConfig *c, bool from_scratch, bool own) {
  if (from_scratch) c->norm = NORM_GN;
  c->mask_logits_fan_in = own;
  if (!from_scratch || !own) return;
  c->mask_source = MASK_ALIGNED;
  c->mask_paste_exact = true;
}
