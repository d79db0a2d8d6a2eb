// An ONNX model (https://onnx.ai/onnx/repo-docs/IR.html, opset 21) as a growing list of nodes. Values are known by
// their names; a function that adds a node returns its output's name, so that calls nest like the formula they write.
#pragma once
#include "base/error.h"
#include "base/proto.h"

enum { ONNX_OPSET = 21, ONNX_IR = 10 };

typedef const char *Name; // of a value, owned by the model; "": an optional input that is left out

typedef enum OnnxType { ONNX_FLOAT = 1, ONNX_UINT8 = 2, ONNX_INT64 = 7, ONNX_BOOL = 9, ONNX_DOUBLE = 11 } OnnxType;

typedef struct Attr { // of a node; the list ends with one that has no name
  const char *name;
  int type;
  float f;
  int n;
  int64_t i[4];
  const char *s;
} Attr;
Attr attr_float(const char *name, float value);
Attr attr_int(const char *name, int64_t value);
Attr attr_text(const char *name, const char *value);
Attr attr_ints(const char *name, int n, const int64_t *values);
#define ATTR_INTS(name, ...)                                                                                           \
  attr_ints(name, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]){__VA_ARGS__})

typedef struct OnnxModel {
  Proto nodes, tensors, inputs, outputs, about; // fields of GraphProto; `about`: of ModelProto
  const char *scope;                            // what names of nodes added next begin with
  char **names;                                 // owned
  size_t count, cap;
  Name *constants; // those of onnx_floats and the like, by their text
  size_t num_constants, cap_constants;
} OnnxModel;

void onnx_free(OnnxModel *m);

// A name that the model owns.
Name onnx_name(OnnxModel *m, const char *fmt, ...) PRINTF_LIKE(2, 3);

// Appends a node of `outs` outputs, named after the scope and the operator, and returns the first. in: NULL at the end.
Name onnx_node(OnnxModel *m, const char *op, const Attr *attrs, const Name *in, int outs, Name *out);
#define ATTRS(...)                                                                                                     \
  (const Attr[]) {                                                                                                     \
    __VA_ARGS__, { 0 }                                                                                                 \
  }
#define EMIT(m, op, ...) onnx_node(m, op, NULL, (const Name[]){__VA_ARGS__, NULL}, 1, NULL)
#define EMIT_WITH(m, op, attrs, ...) onnx_node(m, op, attrs, (const Name[]){__VA_ARGS__, NULL}, 1, NULL)

// Tensors that the file holds: `name` is new, data are of the machine's order, little-endian.
Name onnx_tensor(OnnxModel *m, Name name, OnnxType type, int ndim, const int64_t *dims, const void *data);
// Constants, of which each is stored once: scalars, and lists [n].
Name onnx_float(OnnxModel *m, float value);
Name onnx_double(OnnxModel *m, double value);
Name onnx_int(OnnxModel *m, int64_t value);
Name onnx_ints(OnnxModel *m, int n, const int64_t *values);
#define INTS(m, ...)                                                                                                   \
  onnx_ints(m, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]){__VA_ARGS__})

// Names a value for good: a node Identity.
void onnx_alias(OnnxModel *m, Name value, const char *name);

// dims: "N,3,H,W", numbers or names of sizes that are open.
void onnx_input(OnnxModel *m, const char *name, OnnxType type, const char *dims, const char *about);
void onnx_output(OnnxModel *m, const char *name, OnnxType type, const char *dims, const char *about);
void onnx_about(OnnxModel *m, const char *key, const char *value); // metadata_props

// Writes the file, atomically, and frees the model.
bool onnx_write(OnnxModel *m, const char *path, const char *graph, Err *err);
