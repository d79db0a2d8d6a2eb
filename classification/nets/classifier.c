#include "classification/nets/classifier.h"
#include <string.h>
#include "models/torchvision.h"

void classifier_defaults(ModelConfig *c, int size) {
  c->size = c->max_size = c->train_size_min = size;
  c->train_sizes = 1;
  c->antialias = true;
  c->norm = NORM_BN;
  c->trainable_layers = 5;
  c->classes = 1000;
}

bool classifier_held(const Checkpoint *c, const char *first, int taps, const char *last, const char *head) {
  const CkptTensor *t = ckpt_find(c, last);
  return t && t->ndim == 4 && ckpt_find(c, head) && torchvision_dim(c, first, 2) == taps;
}

bool classifier_config(const Checkpoint *c, const char *variant, const char *head, ModelConfig *config, Err *err) {
  if (!config_init(config, variant, err)) return false;
  config->classes = torchvision_dim(c, head, 0);
  return true;
}

static void image_forward(Graph *g, Node *n) {
  const BatchImages *images = &n->in[0].v->images;
  g->dev->ops->preprocess_affine(g->dev, NODE_ATTR(n, Preprocess), images->info, images->bytes, &n->out[0]->x);
}
static const NodeType image_node = {
    .name = "preprocess_affine", .attr_size = sizeof(Preprocess), .forward = image_forward, .recomputed = true};

Value *classifier_image(Network *network) {
  Graph *g = &network->graph;
  const ModelConfig *c = &network->config;
  g->part = "input";
  Node *n = graph_node(g, &image_node, "image");
  Preprocess *p = NODE_ATTR(n, Preprocess);
  *p = (Preprocess){.unit = c->pixel_unit, .bgr = c->bgr, .antialias = c->antialias};
  memcpy(p->mean, c->mean, sizeof p->mean);
  memcpy(p->std, c->std, sizeof p->std);
  const int channels = c->grey ? 1 : 3;
  Value *image =
      graph_value(g, "image", tensor(g->act, network->images, network->canvas_h, network->canvas_w, channels));
  node_in(n, network->input, FLOW_NONE);
  node_out(n, image);
  return image;
}

static void clear_forward(Graph *g, Node *n) {
  if (!g->dev->measuring) device_zero(g->dev, n->out[0]->x.data, tensor_bytes(&n->out[0]->x));
}
static const NodeType clear_node = {.name = "clear", .forward = clear_forward};

void classifier_clear(Network *n) {
  if (n->losses) node_out(graph_node(&n->graph, &clear_node, "clear_losses"), n->losses);
}

void classifier_auxiliary(Network *n, const char *name, Value *logits, float weight, int index) {
  Graph *g = &n->graph;
  const ClassLoss loss = {.smoothing = n->config.label_smoothing, .weight = weight};
  layer_class_loss(g, graph_name(g, "%s.loss", name), logits, n->labels, &loss, n->losses, index,
                   graph_hits(g, graph_name(g, "%s.hits", name)));
}

void classifier_finish(Network *n, Value *logits) {
  Graph *g = &n->graph;
  g->part = "loss";
  if (n->purpose == FOR_INFERENCE) {
    n->result[CLASS_PROBS] = layer_class_probs(g, "probs", logits);
    n->result[CLASS_PROBS]->keep = true;
    return;
  }
  Value *hits = graph_hits(g, "hits");
  const ClassLoss loss = {.smoothing = n->config.label_smoothing, .weight = 1};
  layer_class_loss(g, "class_loss", logits, n->labels, &loss, n->losses, LOSS_CLASS, hits);
  n->counter[COUNT_TOP1] = &hits->hits.top1;
  n->counter[COUNT_TOP5] = &hits->hits.top5;
}
