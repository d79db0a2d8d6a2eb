#include "models/maskrcnn.h"
#include "models/fpn.h"
#include "models/resnet.h"

const char *const loss_names[LOSSES] = {"loss_objectness", "loss_rpn_box_reg", "loss_classifier", "loss_box_reg",
                                        "loss_mask"};

void boxes_memory(Graph *g, const char *name, Boxes *b, int groups, int capacity) {
  int rows = groups * capacity;
  *b = (Boxes){.groups = groups,
               .capacity = capacity,
               .box = tensor_packed(g->dev->real, rows, 4),
               .score = tensor_packed(g->dev->real, rows, 1)};
  graph_memory(g, name, tensor_bytes(&b->box), &b->box.data);
  graph_memory(g, name, tensor_bytes(&b->score), &b->score.data);
  graph_memory(g, name, (size_t)rows * sizeof *b->index, &b->index);
  graph_memory(g, name, (size_t)groups * sizeof *b->count, &b->count);
}

static void preprocess_forward(Graph *g, Node *n) {
  const MaskRcnn *m = *NODE_ATTR(n, MaskRcnn *);
  Preprocess p = {.unit = m->config.pixel_unit, .bgr = m->config.bgr, .antialias = m->config.antialias};
  for (int i = 0; i < 3; i++) p.mean[i] = m->config.mean[i], p.std[i] = m->config.std[i];
  g->dev->ops->preprocess(g->dev, &p, m->info, m->bytes, &n->out[0]->x);
}

static const NodeKind preprocess_kind = {.name = "preprocess", .forward = preprocess_forward};

static Value *image_node(MaskRcnn *m) {
  Graph *g = &m->graph;
  Node *n = graph_node(g, &preprocess_kind, "image");
  *NODE_ATTR(n, MaskRcnn *) = m;
  Value *v = graph_value(g, "image", tensor(g->act, m->images, m->canvas_h, m->canvas_w, 3));
  node_out(n, v);
  return v;
}

void maskrcnn_build(MaskRcnn *m, const ModelConfig *config, Device *dev, Params *params, bool training, int images,
                    int canvas_h, int canvas_w, int max_objects) {
  *m = (MaskRcnn){
      .config = *config, .canvas_h = canvas_h, .canvas_w = canvas_w, .images = images, .max_objects = max_objects};
  Graph *g = &m->graph;
  graph_init(g, dev, params, training);
  m->truth = (Truth){.images = images, .capacity = max_objects}; // scratch is measured by these
  m->loss = tensor_packed(dev->real, 1, LOSSES);
  if (training) graph_memory(g, "losses", tensor_bytes(&m->loss), &m->loss.data);
  g->part = PART_INPUT;
  m->image = image_node(m);
  g->part = PART_BACKBONE;
  resnet_build(g, config, "backbone.body", m->image, m->c);
  g->part = PART_FPN;
  fpn_build(g, config, "backbone.fpn", m->c, m->p);
  g->part = PART_RPN;
  rpn_build(m);
  g->part = PART_ROI;
  heads_build(m);
  graph_plan(g);
}

void maskrcnn_free(MaskRcnn *m) { graph_free(&m->graph); }
