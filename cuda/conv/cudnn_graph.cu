// A problem as a graph of cuDNN's operations, and the engines that can run it.
//
// Everything is a descriptor: created, given attributes, finalised. Those of a graph are kept for the life of the
// program, since the plans made from it refer to them.
#include <dlfcn.h>
#include <initializer_list>
#include <stdio.h>
#include <string.h>
#include "cuda/common.cuh"
#include "cuda/conv/cudnn_graph.h"

enum { MAX_STEPS = 4, MAX_CONFIGS = 64, MAX_NOTES = 16 };
static const int few[] = {8, MAX_CONFIGS}, few_fused[] = {2, 12}; // configurations of a heuristic: quick, thorough

// ---- the library ------------------------------------------------------------------------------------------------------

// The names and values of cuDNN 9's cudnn_graph.h that are used here.
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

struct CudnnLibrary {
  void *handle;
  size_t (*version)(void);
  const char *(*error)(int);
  int (*create_handle)(void **), (*set_stream)(void *, cudaStream_t);
  int (*create)(int descriptor, void **), (*destroy)(void *), (*finalize)(void *);
  int (*set)(void *, int attribute, int kind, int64_t count, const void *values);
  int (*get)(void *, int attribute, int kind, int64_t capacity, int64_t *count, void *values);
  int (*execute)(void *handle, void *plan, void *pack);
};

static bool load(CudnnLibrary *l) {
  void *so = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  const struct {
    void *to;
    const char *name;
  } symbols[] = {
      {&l->version, "cudnnGetVersion"},
      {&l->error, "cudnnGetErrorString"},
      {&l->create_handle, "cudnnCreate"},
      {&l->set_stream, "cudnnSetStream"},
      {&l->create, "cudnnBackendCreateDescriptor"},
      {&l->destroy, "cudnnBackendDestroyDescriptor"},
      {&l->finalize, "cudnnBackendFinalize"},
      {&l->set, "cudnnBackendSetAttribute"},
      {&l->get, "cudnnBackendGetAttribute"},
      {&l->execute, "cudnnBackendExecute"},
  };
  bool ok = so != NULL;
  for (int i = 0; ok && i < COUNT(symbols); i++) {
    void *p = dlsym(so, symbols[i].name);
    memcpy(symbols[i].to, &p, sizeof p);
    ok = p != NULL;
  }
  ok = ok && !l->create_handle(&l->handle);
  if (!ok)
    fprintf(stderr, "cuDNN is not available (%s): put libcudnn.so.9 on LD_LIBRARY_PATH; using our own kernels\n",
            so ? "the library does not work here" : dlerror());
  return ok;
}

// NULL where it cannot be opened.
static const CudnnLibrary *library() {
  static CudnnLibrary l;
  static const bool ok = load(&l);
  return ok ? &l : NULL;
}
bool cudnn_available(void) { return library() != NULL; }
int cudnn_version(void) { return cudnn_available() ? (int)library()->version() : 0; }

#define CUDNN_CHECK(call)                                                                                              \
  do {                                                                                                                 \
    int status_ = (call);                                                                                              \
    if (status_) die(EXIT_RUN, "cuDNN: %s in %s at %s:%d", library()->error(status_), #call, __FILE__, __LINE__);      \
  } while (0)

// ---- descriptors ------------------------------------------------------------------------------------------------------

static void *create(CudnnDescriptor kind) {
  void *d;
  CUDNN_CHECK(library()->create(kind, &d));
  return d;
}
static void destroy(void *d) {
  if (d) CUDNN_CHECK(library()->destroy(d));
}
static bool finalize(void *d) { return !library()->finalize(d); }
static void *finalized(void *d) {
  CUDNN_CHECK(library()->finalize(d));
  return d;
}

static void set_values(void *d, int attribute, CudnnValueType kind, int64_t count, const void *values) {
  CUDNN_CHECK(library()->set(d, attribute, kind, count, values));
}
static void set_ints(void *d, int attribute, std::initializer_list<int64_t> values) {
  set_values(d, attribute, OF_INT64, (int64_t)values.size(), values.begin());
}
static void set_enum(void *d, int attribute, CudnnValueType kind, int value) {
  set_values(d, attribute, kind, 1, &value);
}
static void set_pointer(void *d, int attribute, CudnnValueType kind, void *value) {
  set_values(d, attribute, kind, 1, &value);
}
static void set_link(void *d, int attribute, void *to) { set_pointer(d, attribute, OF_DESCRIPTOR, to); }
static int64_t get_int(void *d, int attribute) {
  int64_t value = 0, count;
  CUDNN_CHECK(library()->get(d, attribute, OF_INT64, 1, &count, &value));
  return value;
}

// ---- graphs -----------------------------------------------------------------------------------------------------------

// [n, h, w, c] in memory, n · c · h · w to cuDNN.
static void *tensor_new(int64_t id, int type, int64_t n, int64_t h, int64_t w, int64_t c, bool is_virtual) {
  void *t = create(TENSOR);
  set_enum(t, TENSOR_TYPE, OF_DATA_TYPE, type);
  set_ints(t, TENSOR_SIZES, {n, c, h, w});
  set_ints(t, TENSOR_STRIDES, {h * w * c, 1, w * c, c});
  set_ints(t, TENSOR_ID, {id});
  set_ints(t, TENSOR_ALIGNMENT, {16});
  set_values(t, TENSOR_IS_VIRTUAL, OF_BOOLEAN, 1, &is_virtual);
  return finalized(t);
}

static int data_type(const CudnnProblem *p) { return p->dtype == F32 ? FLOAT : p->dtype == BF16 ? BFLOAT16 : HALF; }
static int written_role(const CudnnProblem *p) {
  return p->op == CONV_FORWARD ? CUDNN_Y : p->op == CONV_DGRAD ? CUDNN_X : CUDNN_W;
}

static void *operand(const CudnnProblem *p, int role) {
  int type = data_type(p);
  if (role == CUDNN_BIAS) return tensor_new(role, FLOAT, 1, 1, 1, written_role(p) == CUDNN_Y ? p->k : p->c, false);
  int shape = role == CUDNN_ADDEND || role == CUDNN_MASK ? written_role(p) : role;
  if (shape == CUDNN_X) return tensor_new(role, type, p->n, p->h, p->w, p->c, false);
  if (shape == CUDNN_W) return tensor_new(role, type, p->k, p->r, p->s, p->c, false);
  return tensor_new(role, type, p->n, p->p, p->q, p->k, false);
}

// What one operation hands to the next in registers: a float of the result's shape.
static void *between(const CudnnProblem *p, int step) {
  bool y = written_role(p) == CUDNN_Y;
  return tensor_new(CUDNN_ROLES + step, FLOAT, p->n, y ? p->p : p->h, y ? p->q : p->w, y ? p->k : p->c, true);
}

static void *convolution(const CudnnProblem *p, void *result) {
  void *conv = create(CONVOLUTION), *role[] = {NULL, NULL, NULL};
  set_enum(conv, CONVOLUTION_PRECISION, OF_DATA_TYPE, FLOAT);
  set_enum(conv, CONVOLUTION_MODE, OF_CONVOLUTION_MODE, CROSS_CORRELATION);
  set_ints(conv, CONVOLUTION_DIMENSIONS, {2});
  set_ints(conv, CONVOLUTION_DILATIONS, {1, 1});
  set_ints(conv, CONVOLUTION_STRIDES, {p->stride, p->stride});
  set_ints(conv, CONVOLUTION_PRE_PADDINGS, {p->pad, p->pad});
  set_ints(conv, CONVOLUTION_POST_PADDINGS, {p->pad, p->pad});
  finalized(conv);
  for (int i = CUDNN_X; i <= CUDNN_Y; i++) role[i] = i == written_role(p) ? result : operand(p, i);
  static const CudnnDescriptor kinds[CONV_OPS] = {OPERATION_FORWARD, OPERATION_DGRAD, OPERATION_WGRAD};
  static const int first[CONV_OPS] = {FORWARD_ALPHA, DGRAD_ALPHA, WGRAD_ALPHA};
  void *op = create(kinds[p->op]);
  const float alpha = 1, beta = 0;
  int at = first[p->op];
  set_values(op, at, OF_FLOAT, 1, &alpha);
  set_values(op, at + 1, OF_FLOAT, 1, &beta);
  set_link(op, at + 2, conv);
  set_link(op, at + 3, role[CUDNN_W]);
  set_link(op, at + 4, role[CUDNN_X]);
  set_link(op, at + 5, role[CUDNN_Y]);
  return finalized(op);
}

// result = value + other, max(value, 0), or value where other > 0.
static void *pointwise(int mode, void *value, void *other, void *result) {
  void *kind = create(POINTWISE), *op = create(OPERATION_POINTWISE);
  set_enum(kind, POINTWISE_MODE, OF_POINTWISE_MODE, mode);
  set_enum(kind, POINTWISE_PRECISION, OF_DATA_TYPE, FLOAT);
  set_link(op, OPERATION_MODE, finalized(kind));
  if (mode == RELU_BACKWARD) {
    set_link(op, OPERATION_X, other);
    set_link(op, OPERATION_DY, value);
    set_link(op, OPERATION_DX, result);
  } else {
    set_link(op, OPERATION_X, value);
    if (other) set_link(op, OPERATION_B, other);
    set_link(op, OPERATION_Y, result);
  }
  return finalized(op);
}

// NULL when cuDNN does not know such a combination.
static void *graph_new(const CudnnProblem *p) {
  const struct {
    int wanted, mode, role;
  } steps[MAX_STEPS] = {{p->addend, ADD, CUDNN_ADDEND},
                        {p->bias, ADD, CUDNN_BIAS},
                        {p->relu, RELU_FORWARD, -1},
                        {p->mask, RELU_BACKWARD, CUDNN_MASK}};
  int left = p->addend + p->bias + p->relu + p->mask, count = 0;
  void *ops[1 + MAX_STEPS], *value = left ? between(p, 0) : operand(p, written_role(p));
  ops[count++] = convolution(p, value);
  for (int i = 0; i < MAX_STEPS; i++) {
    if (!steps[i].wanted) continue;
    void *result = --left ? between(p, count) : operand(p, written_role(p));
    ops[count++] = pointwise(steps[i].mode, value, steps[i].role < 0 ? NULL : operand(p, steps[i].role), result);
    value = result;
  }
  void *graph = create(GRAPH);
  set_pointer(graph, GRAPH_HANDLE, OF_HANDLE, library()->handle);
  set_values(graph, GRAPH_OPERATIONS, OF_DESCRIPTOR, count, ops);
  return finalize(graph) ? graph : NULL;
}

// ---- engines ----------------------------------------------------------------------------------------------------------

struct CudnnNotes {
  int count;
  int note[MAX_NOTES];
  bool has(int which) const {
    for (int i = 0; i < count; i++)
      if (note[i] == which) return true;
    return false;
  }
};
static CudnnNotes notes_of(void *engine) {
  CudnnNotes n = {};
  int64_t count = 0;
  CUDNN_CHECK(library()->get(engine, ENGINE_NOTES, OF_NUMERICAL_NOTE, MAX_NOTES, &count, n.note));
  n.count = (int)count;
  return n;
}

static bool asked_for(const CudnnProblem *p, int64_t index) {
  return p->search < CUDNN_ONE || p->search - CUDNN_ONE == index;
}

// fp32 is either exact products or TF32, which rounds in registers; never narrower operands. Winograd's method and FFT
// err by more than the rounding of a sum.
static bool fits(const CudnnProblem *p, const CudnnNotes &notes) {
  if (p->search != CUDNN_ANY && notes.has(NOTE_NONDETERMINISTIC)) return false;
  if (notes.has(NOTE_FFT)) return false;
  for (int note = NOTE_WINOGRAD; note <= NOTE_LAST_WINOGRAD; note++)
    if (notes.has(note)) return false;
  if (p->dtype != F32) return true;
  return !notes.has(NOTE_ROUNDS_INPUTS) && (p->tf32 || !notes.has(NOTE_TENSOR_CORE));
}

// An engine with its knobs, if it can do the problem as asked; takes the configuration. Where cuDNN does not recommend
// it, it has to use tensor cores where they are allowed: others take up to a thousand times as long.
static bool plan_new(const CudnnProblem *p, void *config, bool recommended, CudnnEngine *out) {
  void *engine = create(ENGINE), *plan = create(PLAN);
  int64_t count;
  CUDNN_CHECK(library()->get(config, CONFIG_ENGINE, OF_DESCRIPTOR, 1, &count, &engine));
  CudnnNotes notes = notes_of(engine);
  *out = {NULL, (int)get_int(engine, ENGINE_INDEX), !notes.has(NOTE_NONDETERMINISTIC), 0};
  bool slow = !notes.has(NOTE_TENSOR_CORE) && (p->dtype != F32 || p->tf32),
       ok = asked_for(p, out->index) && fits(p, notes) && (recommended || !slow);
  if (ok) {
    set_pointer(plan, PLAN_HANDLE, OF_HANDLE, library()->handle);
    set_link(plan, PLAN_CONFIG, config);
    ok = finalize(plan);
  }
  destroy(engine);
  destroy(config);
  if (!ok) return destroy(plan), false;
  out->plan = plan;
  out->workspace = (size_t)get_int(plan, PLAN_WORKSPACE);
  return true;
}

// The first configurations that one of cuDNN's heuristics recommends, best first.
static int configurations(void *graph, int mode, void *configs[], int wanted) {
  void *heuristic = create(HEURISTIC);
  set_enum(heuristic, HEURISTIC_MODE, OF_HEURISTIC, mode);
  set_link(heuristic, HEURISTIC_GRAPH, graph);
  int64_t count = 0;
  if (finalize(heuristic)) {
    for (int i = 0; i < wanted; i++) configs[i] = create(ENGINE_CONFIG);
    CUDNN_CHECK(library()->get(heuristic, HEURISTIC_RESULTS, OF_DESCRIPTOR, wanted, &count, configs));
    for (int64_t i = count; i < wanted; i++) destroy(configs[i]);
  }
  destroy(heuristic);
  return (int)count;
}

// The engine of that number with its default knobs; NULL when it cannot run the graph.
static void *default_config(void *graph, int64_t index) {
  void *engine = create(ENGINE), *config = NULL;
  set_link(engine, ENGINE_GRAPH, graph);
  set_ints(engine, ENGINE_INDEX, {index});
  if (finalize(engine)) {
    config = create(ENGINE_CONFIG);
    set_link(config, CONFIG_ENGINE, engine);
    if (!finalize(config)) destroy(config), config = NULL;
  }
  destroy(engine);
  return config;
}

static bool knows(const CudnnEngine *engines, int count, int64_t index) {
  for (int i = 0; i < count; i++)
    if (engines[i].index == index) return true;
  return false;
}

// Those of one heuristic, appended.
static int add_recommended(const CudnnProblem *p, void *graph, int mode, int wanted, CudnnEngine *out, int count,
                           int capacity) {
  void *configs[MAX_CONFIGS];
  int n = configurations(graph, mode, configs, MIN(wanted, capacity - count));
  for (int i = 0; i < n; i++) count += plan_new(p, configs[i], mode != HEURISTIC_FALLBACK, &out[count]);
  return count;
}

// Heuristic B repeats what A says, in another order.
int cudnn_engines(const CudnnProblem *p, CudnnEngine *out, int capacity) {
  void *graph = graph_new(p);
  bool fused = p->addend || p->bias || p->relu || p->mask, quick = p->search == CUDNN_QUICK;
  int count = 0, wanted = fused ? few_fused[!quick] : few[!quick];
  if (!graph) return 0;
  count = add_recommended(p, graph, HEURISTIC_A, wanted, out, count, capacity);
  if (!quick && !fused) count = add_recommended(p, graph, HEURISTIC_B, few[0], out, count, capacity);
  if (count && (quick || fused)) return count;
  count = add_recommended(p, graph, HEURISTIC_FALLBACK, wanted, out, count, capacity);
  for (int64_t i = 0; i < get_int(graph, GRAPH_ENGINES) && count < capacity; i++) {
    void *config = asked_for(p, i) && !knows(out, count, i) ? default_config(graph, i) : NULL;
    if (config) count += plan_new(p, config, false, &out[count]);
  }
  return count;
}

void cudnn_engine_free(CudnnEngine *e) {
  destroy(e->plan);
  *e = {};
}

bool cudnn_execute(const CudnnEngine *e, void *stream, const CudnnData *data, void *workspace) {
  void *pack = create(VARIANT_PACK), *pointers[CUDNN_ROLES];
  int64_t ids[CUDNN_ROLES], count = 0;
  for (int i = 0; i < CUDNN_ROLES; i++)
    if (data->at[i]) ids[count] = i, pointers[count++] = data->at[i];
  set_values(pack, PACK_IDS, OF_INT64, count, ids);
  set_values(pack, PACK_POINTERS, OF_POINTER, count, pointers);
  set_pointer(pack, PACK_WORKSPACE, OF_POINTER, workspace);
  CUDNN_CHECK(library()->set_stream(library()->handle, (cudaStream_t)stream));
  bool ok = finalize(pack) && !library()->execute(library()->handle, e->plan, pack);
  destroy(pack);
  return ok;
}
