// cuDNN's library as this program sees it: the names and values of its graph interface (cuDNN 9's cudnn_graph.h), the
// functions that are used, and its backend descriptors: created, given attributes, finalised.
#pragma once
#include <initializer_list>
#include "base/alloc.h"
#include "cuda/common.cuh"
#include "cudnn/library.h"

// ---- names and values -----------------------------------------------------------------------------------------------

enum CudnnDataType { FLOAT = 0, HALF = 2, BFLOAT16 = 9 };
enum CudnnValueType { // of a value
  OF_HANDLE = 0,
  OF_DATA_TYPE = 1,
  OF_BOOLEAN = 2,
  OF_INT64 = 3,
  OF_FLOAT = 4,
  OF_POINTER = 6,
  OF_CONVOLUTION_MODE = 7,
  OF_HEURISTIC = 8,
  OF_NUMERICAL_NOTE = 11,
  OF_POINTWISE_MODE = 14,
  OF_DESCRIPTOR = 15,
};
enum CudnnDescriptor {
  POINTWISE = 0,
  CONVOLUTION = 1,
  ENGINE = 2,
  ENGINE_CONFIG = 3,
  HEURISTIC = 4,
  PLAN = 5,
  OPERATION_FORWARD = 10,
  OPERATION_WGRAD = 11,
  OPERATION_DGRAD = 12,
  OPERATION_POINTWISE = 13,
  GRAPH = 15,
  VARIANT_PACK = 16,
  TENSOR = 17,
};
enum CudnnAttribute {
  POINTWISE_MODE = 0,
  POINTWISE_PRECISION = 1,
  CONVOLUTION_PRECISION = 100,
  CONVOLUTION_MODE = 101,
  CONVOLUTION_DILATIONS = 102,
  CONVOLUTION_STRIDES = 103,
  CONVOLUTION_POST_PADDINGS = 104,
  CONVOLUTION_PRE_PADDINGS = 105,
  CONVOLUTION_DIMENSIONS = 106,
  HEURISTIC_MODE = 200,
  HEURISTIC_GRAPH = 201,
  HEURISTIC_RESULTS = 202,
  CONFIG_ENGINE = 300,
  PLAN_HANDLE = 400,
  PLAN_CONFIG = 401,
  PLAN_WORKSPACE = 402,
  FORWARD_ALPHA = 700, // + 1: beta, convolution, w, x, y
  DGRAD_ALPHA = 706,   // + 1: beta, convolution, w, dx, dy
  WGRAD_ALPHA = 712,   // + 1: beta, convolution, dw, x, dy
  OPERATION_MODE = 750,
  OPERATION_X = 751,
  OPERATION_B = 752,
  OPERATION_Y = 753,
  OPERATION_DX = 756,
  OPERATION_DY = 757,
  GRAPH_HANDLE = 800,
  GRAPH_OPERATIONS = 801,
  GRAPH_ENGINES = 802, // how many there are
  TENSOR_ALIGNMENT = 900,
  TENSOR_TYPE = 901,
  TENSOR_SIZES = 902,
  TENSOR_STRIDES = 903,
  TENSOR_ID = 906,
  TENSOR_IS_VIRTUAL = 907,
  PACK_IDS = 1000,
  PACK_POINTERS = 1001,
  PACK_WORKSPACE = 1003,
  ENGINE_GRAPH = 1300,
  ENGINE_INDEX = 1301,
  ENGINE_NOTES = 1303,
};
enum CudnnNote {
  NOTE_TENSOR_CORE = 0,
  NOTE_ROUNDS_INPUTS = 1,
  NOTE_FFT = 3,
  NOTE_NONDETERMINISTIC = 4,
  NOTE_WINOGRAD = 5,
  NOTE_LAST_WINOGRAD = 8, // those between say how large its tiles are
};
enum { HEURISTIC_B = 1, HEURISTIC_FALLBACK = 2, HEURISTIC_A = 3 };
enum { ADD = 0, RELU_FORWARD = 100, RELU_BACKWARD = 200 };
enum { CROSS_CORRELATION = 1 };

// The functions that are used, a handle, and the descriptors that live as long as these.
struct CudnnLibrary {
  void *so, *handle; // of dlopen; of cudnnCreate
  void **kept;
  size_t num_kept, capacity;
  size_t (*version)(void);
  const char *(*error)(int);
  int (*create_handle)(void **), (*destroy_handle)(void *), (*set_stream)(void *, cudaStream_t);
  int (*create)(int descriptor, void **), (*destroy)(void *), (*finalize)(void *);
  int (*set)(void *, int attribute, int type, int64_t count, const void *values);
  int (*get)(void *, int attribute, int type, int64_t capacity, int64_t *count, void *values);
  int (*execute)(void *handle, void *plan, void *pack);
};

#define CUDNN_CHECK(l, call)                                                                                           \
  do {                                                                                                                 \
    int status_ = (call);                                                                                              \
    if (status_) die(EXIT_RUN, "cuDNN: %s in %s at %s:%d", (l)->error(status_), #call, __FILE__, __LINE__);            \
  } while (0)

// ---- descriptors ----------------------------------------------------------------------------------------------------

static inline void *create(CudnnLibrary *l, CudnnDescriptor type) {
  void *d;
  CUDNN_CHECK(l, l->create(type, &d));
  return d;
}
// One that lives as long as the library: graphs, and what they consist of, since execution plans refer to them.
static inline void *create_kept(CudnnLibrary *l, CudnnDescriptor type) {
  void *d = create(l, type);
  array_reserve((void **)&l->kept, &l->capacity, l->num_kept + 1, sizeof *l->kept);
  l->kept[l->num_kept++] = d;
  return d;
}
static inline void destroy(CudnnLibrary *l, void *d) {
  if (d) CUDNN_CHECK(l, l->destroy(d));
}
static inline bool finalize(CudnnLibrary *l, void *d) { return !l->finalize(d); }
static inline void *finalized(CudnnLibrary *l, void *d) {
  CUDNN_CHECK(l, l->finalize(d));
  return d;
}

static inline void set_values(CudnnLibrary *l, void *d, int attribute, CudnnValueType type, int64_t count,
                              const void *values) {
  CUDNN_CHECK(l, l->set(d, attribute, type, count, values));
}
static inline void set_ints(CudnnLibrary *l, void *d, int attribute, std::initializer_list<int64_t> values) {
  set_values(l, d, attribute, OF_INT64, (int64_t)values.size(), values.begin());
}
static inline void set_enum(CudnnLibrary *l, void *d, int attribute, CudnnValueType type, int value) {
  set_values(l, d, attribute, type, 1, &value);
}
static inline void set_pointer(CudnnLibrary *l, void *d, int attribute, CudnnValueType type, void *value) {
  set_values(l, d, attribute, type, 1, &value);
}
static inline void set_link(CudnnLibrary *l, void *d, int attribute, void *to) {
  set_pointer(l, d, attribute, OF_DESCRIPTOR, to);
}
static inline int64_t get_int(CudnnLibrary *l, void *d, int attribute) {
  int64_t value = 0, count;
  CUDNN_CHECK(l, l->get(d, attribute, OF_INT64, 1, &count, &value));
  return value;
}
