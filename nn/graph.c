// Building the list. The plan of gradients and of memory is in nn/plan.c, the walk in nn/walk.c.
#include "nn/graph.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

void graph_init(Graph *g, Device *dev, Params *params, bool training) {
  *g = (Graph){.dev = dev, .params = params, .act = params->shadow_dtype, .training = training, .part = ""};
}

void graph_free(Graph *g) {
  for (int i = 0; i < g->nodes; i++) {
    free(g->node[i]->attr);
    free(g->node[i]);
  }
  for (int i = 0; i < g->values; i++) free(g->value[i]);
  for (int i = 0; i < g->num_names; i++) free(g->names[i]);
  free(g->node);
  free(g->value);
  free(g->array);
  free(g->names);
  free(g->blocks);
  for (int i = 0; g->mark && i < g->steps + MARKS; i++) device_mark_close(g->dev, g->mark[i]);
  free(g->mark);
  free(g->walk);
  *g = (Graph){0};
}

// ---- values -----------------------------------------------------------------------------------------------------

const char *graph_name(Graph *g, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  char text[256];
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  g->names = xrealloc(g->names, (size_t)(g->num_names + 1) * sizeof *g->names);
  char *name = xstrdup(text); // before it counts
  return g->names[g->num_names++] = name;
}

static Value *add_value(Graph *g, const char *name, ValueType type) {
  Value *v = xcalloc(1, sizeof *v);
  v->name = name;
  v->id = g->values;
  v->type = type;
  v->block = v->grad_block = -1;
  g->value = xrealloc(g->value, (size_t)(g->values + 1) * sizeof *g->value);
  return g->value[g->values++] = v;
}

Value *graph_value(Graph *g, const char *name, Tensor shape) {
  Value *v = add_value(g, name, VALUE_TENSOR);
  v->x = v->dx = shape;
  return v;
}

Node *graph_writer(const Graph *g, const Value *v) {
  for (int i = g->nodes - 1; i >= 0; i--)
    for (int j = 0; j < g->node[i]->outs; j++)
      if (g->node[i]->out[j] == v) return g->node[i];
  return NULL;
}

int graph_readers(const Graph *g, const Value *v) {
  int n = 0;
  for (int i = 0; i < g->nodes; i++)
    for (int j = 0; j < g->node[i]->ins; j++) n += g->node[i]->in[j].v == v;
  return n;
}

static void add_array(Graph *g, const Value *v, size_t bytes, void *owner) {
  g->array = xrealloc(g->array, (size_t)(g->arrays + 1) * sizeof *g->array);
  g->array[g->arrays++] = (RecordArray){.v = v, .bytes = bytes, .owner = owner, .block = -1};
}

Value *graph_boxes(Graph *g, const char *name, int groups, int capacity) {
  Value *v = add_value(g, name, VALUE_BOXES);
  Boxes *b = &v->boxes;
  CHECK((int64_t)groups * capacity * 4 <= INT32_MAX);
  int rows = groups * capacity;
  *b = (Boxes){.groups = groups,
               .capacity = capacity,
               .box = tensor_packed(g->dev->real, rows, 4),
               .score = tensor_packed(g->dev->real, rows, 1)};
  add_array(g, v, tensor_bytes(&b->box), &b->box.data);
  add_array(g, v, tensor_bytes(&b->score), &b->score.data);
  add_array(g, v, (size_t)rows * sizeof *b->index, &b->index);
  add_array(g, v, (size_t)groups * sizeof *b->count, &b->count);
  return v;
}

Value *graph_rois(Graph *g, const char *name, int capacity) {
  Value *v = add_value(g, name, VALUE_ROIS);
  Rois *r = &v->rois;
  *r = (Rois){.capacity = capacity, .box = tensor_packed(g->dev->real, capacity, 4)};
  add_array(g, v, tensor_bytes(&r->box), &r->box.data);
  add_array(g, v, (size_t)capacity * sizeof *r->image, &r->image);
  add_array(g, v, sizeof *r->count, &r->count);
  return v;
}

Value *graph_rpn_targets(Graph *g, const char *name, int images, int batch) {
  Value *v = add_value(g, name, VALUE_RPN_TARGETS);
  RpnTargets *t = &v->rpn_targets;
  int rows = images * batch;
  *t = (RpnTargets){.images = images, .batch = batch, .delta = tensor_packed(g->dev->real, rows, 4)};
  add_array(g, v, (size_t)rows * sizeof *t->index, &t->index);
  add_array(g, v, (size_t)images * sizeof *t->positives, &t->positives);
  add_array(g, v, (size_t)images * sizeof *t->count, &t->count);
  add_array(g, v, tensor_bytes(&t->delta), &t->delta.data);
  return v;
}

Value *graph_box_targets(Graph *g, const char *name, int rois) {
  Value *v = add_value(g, name, VALUE_BOX_TARGETS);
  BoxTargets *t = &v->box_targets;
  t->delta = tensor_packed(g->dev->real, rois, 4);
  add_array(g, v, (size_t)rois * sizeof *t->label, &t->label);
  add_array(g, v, tensor_bytes(&t->delta), &t->delta.data);
  return v;
}

Value *graph_object_targets(Graph *g, const char *name, int objects) {
  Value *v = add_value(g, name, VALUE_OBJECT_TARGETS);
  ObjectTargets *t = &v->object_targets;
  add_array(g, v, (size_t)objects * sizeof *t->label, &t->label);
  add_array(g, v, (size_t)objects * sizeof *t->truth, &t->truth);
  return v;
}

Value *graph_hits(Graph *g, const char *name) {
  Value *v = add_value(g, name, VALUE_HITS);
  add_array(g, v, sizeof *v->hits.top1, &v->hits.top1);
  add_array(g, v, sizeof *v->hits.top5, &v->hits.top5);
  return v;
}

Value *graph_images(Graph *g, const char *name) { return add_value(g, name, VALUE_IMAGES); }

Value *graph_truth(Graph *g, const char *name, int images, int capacity) {
  Value *v = add_value(g, name, VALUE_TRUTH);
  v->truth = (Truth){.images = images, .capacity = capacity, .box = tensor_packed(g->dev->real, images * capacity, 4)};
  return v;
}

Value *graph_labels(Graph *g, const char *name) { return add_value(g, name, VALUE_LABELS); }

Value *graph_find_value(const Graph *g, const char *name) {
  for (int i = 0; i < g->values; i++)
    if (!strcmp(g->value[i]->name, name)) return g->value[i];
  return NULL;
}

// ---- nodes ------------------------------------------------------------------------------------------------------

Node *graph_node(Graph *g, const NodeType *type, const char *name) {
  Node *n = xcalloc(1, sizeof *n);
  n->type = type;
  n->name = name;
  n->part = g->part;
  n->id = g->nodes;
  n->attr = xcalloc(1, type->attr_size);
  g->node = xrealloc(g->node, (size_t)(g->nodes + 1) * sizeof *g->node);
  return g->node[g->nodes++] = n;
}

void *node_attr(const Node *n, size_t size) {
  CHECK(size == n->type->attr_size);
  return n->attr;
}

void node_in(Node *n, Value *v, Flow flow) {
  CHECK(n->ins < MAX_IN && (flow == FLOW_NONE || v->type == VALUE_TENSOR));
  n->in[n->ins++] = (Input){.v = v, .flow = flow};
}

void node_out(Node *n, Value *v) {
  CHECK(n->outs < MAX_OUT);
  n->out[n->outs++] = v;
}

void node_save(Node *n, Value *v) {
  CHECK(n->saves < MAX_SAVED);
  n->save[n->saves++] = v;
}

void node_aside(Node *n, Value *v) {
  CHECK(n->asides < MAX_ASIDES);
  n->aside[n->asides++] = v;
}

void node_use(Node *n, Param *p) {
  CHECK(n->uses < MAX_USES);
  n->use[n->uses++] = (ParamUse){.p = p};
}

bool graph_begins_part(const Graph *g, int i) {
  for (int j = 0; j < i; j++)
    if (!strcmp(g->node[j]->part, g->node[i]->part)) return false;
  return true;
}

Node *graph_find_node(const Graph *g, const char *name) {
  for (int i = 0; i < g->nodes; i++)
    if (!strcmp(g->node[i]->name, name)) return g->node[i];
  return NULL;
}

static void print_shape(const Value *v, FILE *out) {
  const Tensor *t = &v->x;
  if (v->type != VALUE_TENSOR)
    fprintf(out, " %s", v->name);
  else if (t->h == 1 && t->w == 1)
    fprintf(out, " %s[%d,%d]", v->name, t->n, t->c);
  else
    fprintf(out, " %s[%d,%d,%d,%d]", v->name, t->n, t->h, t->w, t->c);
}

void graph_print(const Graph *g, FILE *out) {
  for (int i = 0; i < g->nodes; i++) {
    const Node *n = g->node[i];
    fprintf(out, "  %-8s %-13s %s:", n->part, n->type->name, n->name);
    for (int j = 0; j < n->ins; j++) fprintf(out, " %s", n->in[j].v->name);
    fprintf(out, " ->");
    for (int j = 0; j < n->outs; j++) print_shape(n->out[j], out);
    for (int j = 0; j < n->saves; j++) fprintf(out, "  saves %s", n->save[j]->name);
    fprintf(out, "%s\n", g->training && !n->runs_backward ? "  (forward only)" : "");
  }
}
