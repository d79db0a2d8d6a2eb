// cuDNN's graph interface, as far as convolutions need it: the engines that can compute a problem.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "cudnn/library.h"
#include "nn/rung.h"

// Which engines to consider. Compiling a fused one takes cuDNN a third of a second.
typedef enum CudnnSearch {
  CUDNN_QUICK,    // the deterministic ones that its heuristics put first
  CUDNN_THOROUGH, // all deterministic ones
  CUDNN_ANY,      // all, also those whose bits differ from run to run
  CUDNN_ONE,      // + i: engine i alone, if it is deterministic
} CudnnSearch;

// A convolution and what follows it in the same launch. Ints alone, so that equal problems are equal bytes.
typedef struct CudnnProblem {
  int op, dtype;                 // ConvOp; of all tensors
  int tf32, search;              // may round to TF32; CudnnSearch
  int stride, pad;               //
  int n, h, w, c, k, r, s, p, q; // x [n, h, w, c], w [k, r, s, c], y [n, p, q, k], all of them dense
  int addend, bias, relu, mask;  // of forward and dgrad, in this order: + addend, + bias, ReLU, · (mask > 0)
} CudnnProblem;

// Memory by role; what a problem does not mention is not looked at. The op writes to w (wgrad), x (dgrad) or y.
enum { CUDNN_X, CUDNN_W, CUDNN_Y, CUDNN_ADDEND, CUDNN_BIAS, CUDNN_MASK, CUDNN_ROLES };
typedef struct CudnnData {
  void *at[CUDNN_ROLES]; // the bias is float [channels], all others are of the problem's dtype
} CudnnData;

// One of cuDNN's ways to compute a problem.
typedef struct CudnnEngine {
  void *plan; // its execution plan; NULL: none
  int index;  // cuDNN's number for it
  bool deterministic;
  size_t workspace; // bytes
} CudnnEngine;

// The engines that can compute the problem: with knobs that cuDNN's heuristics recommend, likely best first, then the
// remaining ones with their default knobs. Returns how many. A graph that is built for the problem stays in the
// library.
int cudnn_engines(CudnnLibrary *l, const CudnnProblem *p, CudnnEngine *out, int capacity);
void cudnn_engine_free(CudnnLibrary *l, CudnnEngine *e);
// Queues it on `stream`, with e->workspace bytes of `workspace`; false when cuDNN refuses.
bool cudnn_execute(CudnnLibrary *l, const CudnnEngine *e, void *stream, const CudnnData *data, void *workspace);
