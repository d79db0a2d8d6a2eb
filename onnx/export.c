#include "onnx/export.h"
#include <stdlib.h>
#include <string.h>
#include "nn/rung.h"
#include "onnx/emit.h"

// ---- outputs --------------------------------------------------------------------------------------------------------

static void output(Emit *e, const char *name, OnnxType type, const char *dims, Name value, const char *about) {
  onnx_alias(&e->m, value, name);
  onnx_output(&e->m, name, type, dims, about);
}

static void detector_outputs(Emit *e) {
  OnnxModel *m = &e->m;
  const Network *n = e->network;
  const EmitBoxes *found = emit_boxes(e, &n->result[DETECTED_BOXES]->boxes);
  const Value *masks = n->result[DETECTED_MASKS];
  const int most = n->config.detections;
  const char *frame = e->bytes ? "x1 y1 x2 y2 in pixels of the picture given; best first; zeros from count on"
                               : "x1 y1 x2 y2 in pixels of the input; best first; zeros from count on";
  char list[64], boxes[64], probs[64];
  snprintf(list, sizeof list, "N,%d", most);
  snprintf(boxes, sizeof boxes, "N,%d,4", most);
  Name score = found->table[0].score, zero = onnx_float(m, 0), there = EMIT(m, "GreaterOrEqual", score, zero);
  Name box = e->ratio ? EMIT(m, "Mul", found->table[0].box, e->ratio) : found->table[0].box;
  output(e, "boxes", ONNX_FLOAT, boxes, EMIT(m, "Where", EMIT(m, "Unsqueeze", there, INTS(m, 2)), box, zero), frame);
  output(e, "labels", ONNX_INT64, list, EMIT(m, "Where", there, found->label, onnx_int(m, 0)),
         "from 1, in the order of the categories; 0 from count on");
  output(e, "scores", ONNX_FLOAT, list, EMIT(m, "Where", there, score, zero), "descending");
  if (masks) {
    snprintf(probs, sizeof probs, "N,%d,%d,%d", most, masks->x.h, masks->x.w);
    output(e, "masks", ONNX_FLOAT, probs, emit_value(e, &masks->x), "probabilities over the box");
  }
  output(e, "count", ONNX_INT64, "N",
         EMIT_WITH(m, "ReduceSum", ATTRS(attr_int("keepdims", 0)), emit_cast(e, there, ONNX_INT64), INTS(m, 1)),
         "detections of each image");
}

static void classifier_outputs(Emit *e) {
  char dims[64];
  snprintf(dims, sizeof dims, "N,%d", e->network->config.classes);
  onnx_output(&e->m, "logits", ONNX_FLOAT, dims, "before softmax"); // which emit_class_probs has named
  output(e, "probabilities", ONNX_FLOAT, dims, emit_value(e, &e->network->result[CLASS_PROBS]->x), "softmax of logits");
}

// What the caller of a model without preprocessing has to do: (RGB / unit - mean) / std, after resizing.
static void tell_preprocessing(Emit *e) {
  const ModelConfig *c = &e->network->config;
  const struct {
    const char *key;
    const float *values;
  } list[] = {{"mean", c->mean}, {"std", c->std}};
  char text[128];
  for (int i = 0; i < COUNT(list); i++) {
    const float *v = list[i].values;
    snprintf(text, sizeof text, "%g,%g,%g", (double)v[c->bgr ? 2 : 0], (double)v[1], (double)v[c->bgr ? 0 : 2]);
    onnx_about(&e->m, list[i].key, text);
  }
  snprintf(text, sizeof text, "%g", (double)c->pixel_unit);
  onnx_about(&e->m, "unit", text);
  snprintf(text, sizeof text, "%d", c->size);
  onnx_about(&e->m, "size", text);
  snprintf(text, sizeof text, "%d", c->max_size);
  onnx_about(&e->m, "max_size", text);
}

// ---- the walk -------------------------------------------------------------------------------------------------------

static void before_node(Observer *o, Graph *g, Node *n, Pass pass) {
  Emit *e = (Emit *)((char *)o - offsetof(Emit, observer));
  (void)g;
  (void)pass;
  e->node = n;
  e->m.scope = n->name;
}

// Types of nodes whose ops stand in ops_onnx.
static bool can_say(const NodeType *type) {
  static const char *const known[] = {"preprocess",   "preprocess_affine", "conv",          "conv_t",
                                      "norm",         "max_pool",          "avg_pool",      "concat",
                                      "class_probs",  "rpn_select",        "nms",           "boxes_merge",
                                      "rois_compact", "roi_align",         "detect_select", "mask_select"};
  for (int i = 0; i < COUNT(known); i++)
    if (!strcmp(known[i], type->name)) return true;
  return false;
}

bool onnx_export(Network *n, const OnnxOptions *o, Err *err) {
  Graph *g = &n->graph;
  Device *dev = g->dev;
  for (int i = 0; i < g->nodes; i++)
    if (!can_say(g->node[i]->type))
      return err_set(err, "%s: ONNX opset 21 has no form for the layer %s (%s)", o->path, g->node[i]->name,
                     g->node[i]->type->name);
  CHECK(dev->real == F32 && !dev->gpu && g->act == F32);
  CHECK(dev->conv_rung && !dev->conv_rung->packs); // filters as they are
  Emit e = {.dev = *dev, .observer = {.before = before_node}, .network = n, .bytes = o->bytes, .any_size = o->any_size};
  e.dev.ops = &ops_onnx;
  g->dev = &e.dev;
  graph_observe(g, &e.observer);
  graph_forward(g);
  graph_unobserve(g, &e.observer);
  g->dev = dev;
  e.m.scope = "outputs";
  (n->model->traits & MODEL_DETECTOR ? detector_outputs : classifier_outputs)(&e);
  tell_preprocessing(&e);
  if (o->categories) onnx_about(&e.m, "categories", o->categories);
  free(e.value);
  free(e.boxes);
  free(e.rois);
  return onnx_write(&e.m, o->path, n->model->name, err);
}
