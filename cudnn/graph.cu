// A problem as a graph of cuDNN's operations, and the engines that can run it.
//
// Everything is a backend descriptor: created, given attributes, finalised. Those of a graph are kept as long as the
// library, since the execution plans made from it refer to them.
#include <stdio.h>
#include <string.h>
#include "cudnn/graph.h"
#include "cudnn/library.cuh"

enum { MAX_STEPS = 4, MAX_CONFIGS = 64, MAX_NOTES = 16 };
static const int few[] = {8, MAX_CONFIGS}, few_fused[] = {2, 12}; // configurations of a heuristic: quick, thorough

// ---- graphs ---------------------------------------------------------------------------------------------------------

// [n, h, w, c] in memory, n · c · h · w to cuDNN.
static void *tensor_new(CudnnLibrary *l, int64_t id, int type, int64_t n, int64_t h, int64_t w, int64_t c,
                        bool is_virtual) {
  void *t = create_kept(l, TENSOR);
  set_enum(l, t, TENSOR_TYPE, OF_DATA_TYPE, type);
  set_ints(l, t, TENSOR_SIZES, {n, c, h, w});
  set_ints(l, t, TENSOR_STRIDES, {h * w * c, 1, w * c, c});
  set_ints(l, t, TENSOR_ID, {id});
  set_ints(l, t, TENSOR_ALIGNMENT, {16});
  set_values(l, t, TENSOR_IS_VIRTUAL, OF_BOOLEAN, 1, &is_virtual);
  return finalized(l, t);
}

static int data_type(const CudnnProblem *p) { return p->dtype == F32 ? FLOAT : p->dtype == BF16 ? BFLOAT16 : HALF; }
static int written_role(const CudnnProblem *p) {
  return p->op == CONV_FORWARD ? CUDNN_Y : p->op == CONV_DGRAD ? CUDNN_X : CUDNN_W;
}

static void *operand(CudnnLibrary *l, const CudnnProblem *p, int role) {
  int type = data_type(p);
  if (role == CUDNN_BIAS) return tensor_new(l, role, FLOAT, 1, 1, 1, written_role(p) == CUDNN_Y ? p->k : p->c, false);
  int shape = role == CUDNN_ADDEND || role == CUDNN_MASK ? written_role(p) : role;
  if (shape == CUDNN_X) return tensor_new(l, role, type, p->n, p->h, p->w, p->c, false);
  if (shape == CUDNN_W) return tensor_new(l, role, type, p->k, p->r, p->s, p->c, false);
  return tensor_new(l, role, type, p->n, p->p, p->q, p->k, false);
}

// What one operation hands to the next in registers, a virtual tensor: a float of the result's shape.
static void *between(CudnnLibrary *l, const CudnnProblem *p, int step) {
  bool y = written_role(p) == CUDNN_Y;
  return tensor_new(l, CUDNN_ROLES + step, FLOAT, p->n, y ? p->p : p->h, y ? p->q : p->w, y ? p->k : p->c, true);
}

static void *convolution(CudnnLibrary *l, const CudnnProblem *p, void *result) {
  void *conv = create_kept(l, CONVOLUTION), *role[] = {NULL, NULL, NULL};
  set_enum(l, conv, CONVOLUTION_PRECISION, OF_DATA_TYPE, FLOAT);
  set_enum(l, conv, CONVOLUTION_MODE, OF_CONVOLUTION_MODE, CROSS_CORRELATION);
  set_ints(l, conv, CONVOLUTION_DIMENSIONS, {2});
  set_ints(l, conv, CONVOLUTION_DILATIONS, {1, 1});
  set_ints(l, conv, CONVOLUTION_STRIDES, {p->stride, p->stride});
  set_ints(l, conv, CONVOLUTION_PRE_PADDINGS, {p->pad, p->pad});
  set_ints(l, conv, CONVOLUTION_POST_PADDINGS, {p->pad, p->pad});
  finalized(l, conv);
  for (int i = CUDNN_X; i <= CUDNN_Y; i++) role[i] = i == written_role(p) ? result : operand(l, p, i);
  static const CudnnDescriptor types[CONV_OPS] = {OPERATION_FORWARD, OPERATION_DGRAD, OPERATION_WGRAD};
  static const int first[CONV_OPS] = {FORWARD_ALPHA, DGRAD_ALPHA, WGRAD_ALPHA};
  void *op = create_kept(l, types[p->op]);
  const float alpha = 1, beta = 0;
  int at = first[p->op];
  set_values(l, op, at, OF_FLOAT, 1, &alpha);
  set_values(l, op, at + 1, OF_FLOAT, 1, &beta);
  set_link(l, op, at + 2, conv);
  set_link(l, op, at + 3, role[CUDNN_W]);
  set_link(l, op, at + 4, role[CUDNN_X]);
  set_link(l, op, at + 5, role[CUDNN_Y]);
  return finalized(l, op);
}

// result = value + other, max(value, 0), or value where other > 0.
static void *pointwise(CudnnLibrary *l, int mode, void *value, void *other, void *result) {
  void *type = create_kept(l, POINTWISE), *op = create_kept(l, OPERATION_POINTWISE);
  set_enum(l, type, POINTWISE_MODE, OF_POINTWISE_MODE, mode);
  set_enum(l, type, POINTWISE_PRECISION, OF_DATA_TYPE, FLOAT);
  set_link(l, op, OPERATION_MODE, finalized(l, type));
  if (mode == RELU_BACKWARD) {
    set_link(l, op, OPERATION_X, other);
    set_link(l, op, OPERATION_DY, value);
    set_link(l, op, OPERATION_DX, result);
  } else {
    set_link(l, op, OPERATION_X, value);
    if (other) set_link(l, op, OPERATION_B, other);
    set_link(l, op, OPERATION_Y, result);
  }
  return finalized(l, op);
}

// NULL when cuDNN does not know such a combination.
static void *graph_new(CudnnLibrary *l, const CudnnProblem *p) {
  const struct {
    int wanted, mode, role;
  } steps[MAX_STEPS] = {{p->addend, ADD, CUDNN_ADDEND},
                        {p->bias, ADD, CUDNN_BIAS},
                        {p->relu, RELU_FORWARD, -1},
                        {p->mask, RELU_BACKWARD, CUDNN_MASK}};
  int left = p->addend + p->bias + p->relu + p->mask, count = 0;
  void *ops[1 + MAX_STEPS], *value = left ? between(l, p, 0) : operand(l, p, written_role(p));
  ops[count++] = convolution(l, p, value);
  for (int i = 0; i < MAX_STEPS; i++) {
    if (!steps[i].wanted) continue;
    void *result = --left ? between(l, p, count) : operand(l, p, written_role(p));
    ops[count++] = pointwise(l, steps[i].mode, value, steps[i].role < 0 ? NULL : operand(l, p, steps[i].role), result);
    value = result;
  }
  void *graph = create_kept(l, GRAPH);
  set_pointer(l, graph, GRAPH_HANDLE, OF_HANDLE, l->handle);
  set_values(l, graph, GRAPH_OPERATIONS, OF_DESCRIPTOR, count, ops);
  return finalize(l, graph) ? graph : NULL;
}

// ---- engines --------------------------------------------------------------------------------------------------------

struct CudnnNotes {
  int count;
  int note[MAX_NOTES];
  bool has(int which) const {
    for (int i = 0; i < count; i++)
      if (note[i] == which) return true;
    return false;
  }
};
static CudnnNotes notes_of(CudnnLibrary *l, void *engine) {
  CudnnNotes n = {};
  int64_t count = 0;
  CUDNN_CHECK(l, l->get(engine, ENGINE_NOTES, OF_NUMERICAL_NOTE, MAX_NOTES, &count, n.note));
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
static bool plan_new(CudnnLibrary *l, const CudnnProblem *p, void *config, bool recommended, CudnnEngine *out) {
  void *engine = create(l, ENGINE), *plan = create(l, PLAN);
  int64_t count;
  CUDNN_CHECK(l, l->get(config, CONFIG_ENGINE, OF_DESCRIPTOR, 1, &count, &engine));
  CudnnNotes notes = notes_of(l, engine);
  *out = {NULL, (int)get_int(l, engine, ENGINE_INDEX), !notes.has(NOTE_NONDETERMINISTIC), 0};
  bool slow = !notes.has(NOTE_TENSOR_CORE) && (p->dtype != F32 || p->tf32),
       ok = asked_for(p, out->index) && fits(p, notes) && (recommended || !slow);
  if (ok) {
    set_pointer(l, plan, PLAN_HANDLE, OF_HANDLE, l->handle);
    set_link(l, plan, PLAN_CONFIG, config);
    ok = finalize(l, plan);
  }
  destroy(l, engine);
  destroy(l, config);
  if (!ok) {
    destroy(l, plan);
    return false;
  }
  out->plan = plan;
  out->workspace = (size_t)get_int(l, plan, PLAN_WORKSPACE);
  return true;
}

// The first configurations that one of cuDNN's heuristics recommends, best first.
static int configurations(CudnnLibrary *l, void *graph, int mode, void *configs[], int wanted) {
  void *heuristic = create(l, HEURISTIC);
  set_enum(l, heuristic, HEURISTIC_MODE, OF_HEURISTIC, mode);
  set_link(l, heuristic, HEURISTIC_GRAPH, graph);
  int64_t count = 0;
  if (finalize(l, heuristic)) {
    for (int i = 0; i < wanted; i++) configs[i] = create(l, ENGINE_CONFIG);
    CUDNN_CHECK(l, l->get(heuristic, HEURISTIC_RESULTS, OF_DESCRIPTOR, wanted, &count, configs));
    for (int64_t i = count; i < wanted; i++) destroy(l, configs[i]);
  }
  destroy(l, heuristic);
  return (int)count;
}

// The engine of that number with its default knobs; NULL when it cannot run the graph.
static void *default_config(CudnnLibrary *l, void *graph, int64_t index) {
  void *engine = create(l, ENGINE), *config = NULL;
  set_link(l, engine, ENGINE_GRAPH, graph);
  set_ints(l, engine, ENGINE_INDEX, {index});
  if (finalize(l, engine)) {
    config = create(l, ENGINE_CONFIG);
    set_link(l, config, CONFIG_ENGINE, engine);
    if (!finalize(l, config)) {
      destroy(l, config);
      config = NULL;
    }
  }
  destroy(l, engine);
  return config;
}

static bool knows(const CudnnEngine *engines, int count, int64_t index) {
  for (int i = 0; i < count; i++)
    if (engines[i].index == index) return true;
  return false;
}

// Those of one heuristic, appended.
static int add_recommended(CudnnLibrary *l, const CudnnProblem *p, void *graph, int mode, int wanted, CudnnEngine *out,
                           int count, int capacity) {
  void *configs[MAX_CONFIGS];
  int n = configurations(l, graph, mode, configs, MIN(wanted, capacity - count));
  for (int i = 0; i < n; i++) count += plan_new(l, p, configs[i], mode != HEURISTIC_FALLBACK, &out[count]);
  return count;
}

// Heuristic B repeats what A says, in another order.
int cudnn_engines(CudnnLibrary *l, const CudnnProblem *p, CudnnEngine *out, int capacity) {
  void *graph = graph_new(l, p);
  bool fused = p->addend || p->bias || p->relu || p->mask, quick = p->search == CUDNN_QUICK;
  int count = 0, wanted = fused ? few_fused[!quick] : few[!quick];
  if (!graph) return 0;
  count = add_recommended(l, p, graph, HEURISTIC_A, wanted, out, count, capacity);
  if (!quick && !fused) count = add_recommended(l, p, graph, HEURISTIC_B, few[0], out, count, capacity);
  if (count && (quick || fused)) return count;
  count = add_recommended(l, p, graph, HEURISTIC_FALLBACK, wanted, out, count, capacity);
  for (int64_t i = 0; i < get_int(l, graph, GRAPH_ENGINES) && count < capacity; i++) {
    void *config = asked_for(p, i) && !knows(out, count, i) ? default_config(l, graph, i) : NULL;
    if (config) count += plan_new(l, p, config, false, &out[count]);
  }
  return count;
}

void cudnn_engine_free(CudnnLibrary *l, CudnnEngine *e) {
  destroy(l, e->plan);
  *e = {};
}

bool cudnn_execute(CudnnLibrary *l, const CudnnEngine *e, void *stream, const CudnnData *data, void *workspace) {
  void *pack = create(l, VARIANT_PACK), *pointers[CUDNN_ROLES];
  int64_t ids[CUDNN_ROLES], count = 0;
  for (int i = 0; i < CUDNN_ROLES; i++)
    if (data->at[i]) {
      ids[count] = i;
      pointers[count++] = data->at[i];
    }
  set_values(l, pack, PACK_IDS, OF_INT64, count, ids);
  set_values(l, pack, PACK_POINTERS, OF_POINTER, count, pointers);
  set_pointer(l, pack, PACK_WORKSPACE, OF_POINTER, workspace);
  CUDNN_CHECK(l, l->set_stream(l->handle, (cudaStream_t)stream));
  bool ok = finalize(l, pack) && !l->execute(l->handle, e->plan, pack);
  destroy(l, pack);
  return ok;
}
