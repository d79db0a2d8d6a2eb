#include "onnx/model.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/machine.h"

// Field numbers of onnx.proto (https://github.com/onnx/onnx/blob/v1.16.0/onnx/onnx.proto).
enum { MODEL_IR = 1, MODEL_PRODUCER = 2, MODEL_VERSION = 3, MODEL_GRAPH = 7, MODEL_OPSET = 8, MODEL_METADATA = 14 };
enum { OPSET_VERSION = 2 };
enum { ENTRY_KEY = 1, ENTRY_VALUE = 2 };
enum { GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_TENSOR = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3, NODE_OP = 4, NODE_ATTRIBUTE = 5 };
enum { ATTR_NAME = 1, ATTR_F = 2, ATTR_I = 3, ATTR_S = 4, ATTR_INTS_LIST = 8, ATTR_TYPE = 20 };
enum { TYPE_FLOAT = 1, TYPE_INT = 2, TYPE_STRING = 3, TYPE_INTS = 7 };
enum { TENSOR_DIMS = 1, TENSOR_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW = 9 };
enum { VALUE_NAME = 1, VALUE_KIND = 2, VALUE_DOC = 3, KIND_TENSOR = 1, TENSOR_ELEMENT = 1, TENSOR_SHAPE = 2 };
enum { SHAPE_DIM = 1, DIM_VALUE = 1, DIM_PARAM = 2 };

// ---- names ----------------------------------------------------------------------------------------------------------

static Name own(OnnxModel *m, char *name) {
  array_reserve((void **)&m->names, &m->cap, m->count + 1, sizeof *m->names);
  return m->names[m->count++] = name;
}

Name onnx_name(OnnxModel *m, const char *fmt, ...) {
  char text[512];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  return own(m, xstrdup(text));
}

void onnx_free(OnnxModel *m) {
  proto_free(&m->nodes);
  proto_free(&m->tensors);
  proto_free(&m->inputs);
  proto_free(&m->outputs);
  proto_free(&m->about);
  for (size_t i = 0; i < m->count; i++) free(m->names[i]);
  free(m->names);
  free(m->constants);
  *m = (OnnxModel){0};
}

// ---- nodes ----------------------------------------------------------------------------------------------------------

Attr attr_float(const char *name, float value) { return (Attr){.name = name, .type = TYPE_FLOAT, .f = value}; }
Attr attr_int(const char *name, int64_t value) { return (Attr){.name = name, .type = TYPE_INT, .i = {value}}; }
Attr attr_text(const char *name, const char *value) { return (Attr){.name = name, .type = TYPE_STRING, .s = value}; }
Attr attr_ints(const char *name, int n, const int64_t *values) {
  Attr a = {.name = name, .type = TYPE_INTS, .n = n};
  CHECK(n <= COUNT(a.i));
  memcpy(a.i, values, (size_t)n * sizeof *values);
  return a;
}

static void add_attr(Proto *node, const Attr *a) {
  Proto p = {0};
  proto_text(&p, ATTR_NAME, a->name);
  proto_int(&p, ATTR_TYPE, a->type);
  if (a->type == TYPE_FLOAT) proto_float(&p, ATTR_F, a->f);
  if (a->type == TYPE_INT) proto_int(&p, ATTR_I, a->i[0]);
  if (a->type == TYPE_STRING) proto_text(&p, ATTR_S, a->s);
  for (int i = 0; i < a->n; i++) proto_int(&p, ATTR_INTS_LIST, a->i[i]);
  proto_message(node, NODE_ATTRIBUTE, &p);
}

Name onnx_node(OnnxModel *m, const char *op, const Attr *attrs, const Name *in, int outs, Name *out) {
  Name one, name = onnx_name(m, "%s/%s_%zu", m->scope ? m->scope : "graph", op, m->count);
  if (!out) out = &one;
  Proto p = {0};
  for (; *in; in++) proto_text(&p, NODE_INPUT, *in);
  for (int i = 0; i < outs; i++) {
    out[i] = outs == 1 ? name : onnx_name(m, "%s.%d", name, i);
    proto_text(&p, NODE_OUTPUT, out[i]);
  }
  proto_text(&p, NODE_NAME, name);
  proto_text(&p, NODE_OP, op);
  for (; attrs && attrs->name; attrs++) add_attr(&p, attrs);
  proto_message(&m->nodes, GRAPH_NODE, &p);
  return out[0];
}

void onnx_alias(OnnxModel *m, Name value, const char *name) {
  Proto p = {0};
  proto_text(&p, NODE_INPUT, value);
  proto_text(&p, NODE_OUTPUT, name);
  proto_text(&p, NODE_NAME, name);
  proto_text(&p, NODE_OP, "Identity");
  proto_message(&m->nodes, GRAPH_NODE, &p);
}

// ---- tensors --------------------------------------------------------------------------------------------------------

static size_t type_bytes(OnnxType t) { return t == ONNX_FLOAT ? 4 : t == ONNX_UINT8 || t == ONNX_BOOL ? 1 : 8; }

Name onnx_tensor(OnnxModel *m, Name name, OnnxType type, int ndim, const int64_t *dims, const void *data) {
  Proto p = {0};
  size_t elements = 1;
  for (int i = 0; i < ndim; i++) {
    proto_int(&p, TENSOR_DIMS, dims[i]);
    elements *= (size_t)dims[i];
  }
  proto_int(&p, TENSOR_TYPE, type);
  proto_text(&p, TENSOR_NAME, name);
  proto_bytes(&p, TENSOR_RAW, data, elements * type_bytes(type));
  proto_message(&m->tensors, GRAPH_TENSOR, &p);
  return name;
}

// The constant that has this text; it is stored when it is first asked for. ndim 0: a scalar.
static Name constant(OnnxModel *m, const char *text, OnnxType type, int ndim, int64_t n, const void *data) {
  for (size_t i = 0; i < m->num_constants; i++)
    if (!strcmp(m->constants[i], text)) return m->constants[i];
  array_reserve((void **)&m->constants, &m->cap_constants, m->num_constants + 1, sizeof *m->constants);
  Name name = onnx_name(m, "%s", text);
  m->constants[m->num_constants++] = name;
  return onnx_tensor(m, name, type, ndim, &n, data);
}

Name onnx_float(OnnxModel *m, float value) {
  char text[64];
  snprintf(text, sizeof text, "%.9gf", (double)value);
  return constant(m, text, ONNX_FLOAT, 0, 1, &value);
}

Name onnx_double(OnnxModel *m, double value) {
  char text[64];
  snprintf(text, sizeof text, "%.17g", value);
  return constant(m, text, ONNX_DOUBLE, 0, 1, &value);
}

Name onnx_int(OnnxModel *m, int64_t value) {
  char text[64];
  snprintf(text, sizeof text, "%" PRId64 "i", value);
  return constant(m, text, ONNX_INT64, 0, 1, &value);
}

Name onnx_ints(OnnxModel *m, int n, const int64_t *values) {
  char text[256] = "[";
  size_t used = 1;
  for (int i = 0; i < n; i++)
    used += (size_t)snprintf(text + used, sizeof text - used, i ? ",%" PRId64 : "%" PRId64, values[i]);
  CHECK(used + 1 < sizeof text);
  strcat(text, "]");
  return constant(m, text, ONNX_INT64, 1, n, values);
}

// ---- inputs, outputs, file ------------------------------------------------------------------------------------------

static void add_shape(Proto *tensor, const char *dims) {
  Proto shape = {0};
  for (const char *at = dims; *at;) {
    Proto dim = {0};
    char text[64];
    const size_t n = strcspn(at, ",");
    snprintf(text, sizeof text, "%.*s", (int)n, at);
    char *end;
    const long value = strtol(text, &end, 10);
    if (*end)
      proto_text(&dim, DIM_PARAM, text);
    else
      proto_int(&dim, DIM_VALUE, value);
    proto_message(&shape, SHAPE_DIM, &dim);
    at += n + (at[n] == ',');
  }
  proto_message(tensor, TENSOR_SHAPE, &shape);
}

static void add_value(Proto *graph, int field, const char *name, OnnxType type, const char *dims, const char *about) {
  Proto value = {0}, kind = {0}, tensor = {0};
  proto_int(&tensor, TENSOR_ELEMENT, type);
  add_shape(&tensor, dims);
  proto_message(&kind, KIND_TENSOR, &tensor);
  proto_text(&value, VALUE_NAME, name);
  proto_message(&value, VALUE_KIND, &kind);
  proto_text(&value, VALUE_DOC, about);
  proto_message(graph, field, &value);
}

void onnx_input(OnnxModel *m, const char *name, OnnxType type, const char *dims, const char *about) {
  add_value(&m->inputs, GRAPH_INPUT, name, type, dims, about);
}

void onnx_output(OnnxModel *m, const char *name, OnnxType type, const char *dims, const char *about) {
  add_value(&m->outputs, GRAPH_OUTPUT, name, type, dims, about);
}

void onnx_about(OnnxModel *m, const char *key, const char *value) {
  Proto p = {0};
  proto_text(&p, ENTRY_KEY, key);
  proto_text(&p, ENTRY_VALUE, value);
  proto_message(&m->about, MODEL_METADATA, &p);
}

static void take(Proto *to, Proto *from) {
  proto_append(to, from->bytes, from->n);
  proto_free(from);
}

static void compose(OnnxModel *m, const char *name, Proto *model) {
  Proto graph = {0}, opset = {0};
  take(&graph, &m->nodes);
  proto_text(&graph, GRAPH_NAME, name);
  take(&graph, &m->tensors);
  take(&graph, &m->inputs);
  take(&graph, &m->outputs);
  proto_int(model, MODEL_IR, ONNX_IR);
  proto_text(model, MODEL_PRODUCER, "maskrcnn.c");
  proto_text(model, MODEL_VERSION, build_version);
  proto_int(&opset, OPSET_VERSION, ONNX_OPSET);
  proto_message(model, MODEL_OPSET, &opset);
  take(model, &m->about);
  proto_message(model, MODEL_GRAPH, &graph);
}

bool onnx_write(OnnxModel *m, const char *path, const char *graph, Err *err) {
  Proto model = {0};
  AtomicFile file;
  compose(m, graph, &model);
  onnx_free(m);
  bool ok = model.n <= INT32_MAX ||
            err_set(err, "%s: the model has %.1f GB; ONNX files hold 2 GB at most", path, (double)model.n / 1e9);
  ok = ok && file_begin(&file, path, err);
  if (ok) {
    fwrite(model.bytes, 1, model.n, file.f);
    ok = file_commit(&file, err);
  }
  proto_free(&model);
  return ok;
}
