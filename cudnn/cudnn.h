// The peer: a convolution by the fastest of cuDNN's engines. The rung "cudnn" is built on this, and so are benchmarks,
// which time cuDNN without what our contract adds to it.
#pragma once
#include "cudnn/graph.h"
#include "nn/rung.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CudnnPlan {
  CudnnEngine engine;
  int tried;       // engines that were timed
  int fused_tried; // of those, the ones that do all that the Dest asks for in one graph
  bool finish; // the engine's result goes to the workspace, and an epilogue kernel of ours does what the Dest asks for
} CudnnPlan;

// It keeps the library and the plan chosen for every problem met: opened by a device's first call, closed with the
// device.
extern const Rung rung_cudnn;

// Whether the library can be opened; the first call does so, and says on stderr where it cannot be.
bool cudnn_available(Device *dev);
int cudnn_version(Device *dev); // 91900 is 9.19.0; 0: not available
// How to compute op; engine.plan is NULL when cuDNN cannot. Tensors count by their pitch: w has as many rows as y's
// pitch. All are of one dtype, also wgrad's result w. out: of forward and dgrad, to y or x; NULL for wgrad. Where the
// Dest can be part of cuDNN's graph, the fused engines compete with the best plain one and our kernel after it. The
// first call for a problem times the engines on operands of its own, with a cold L2 cache; the choice is kept.
CudnnPlan cudnn_plan(Device *dev, ConvOp op, const Conv *conv, const Tensor *x, const Tensor *w, const Tensor *y,
                     const Dest *out, CudnnSearch search);
// Bytes that cudnn_run needs.
size_t cudnn_workspace(const CudnnPlan *plan, const Dest *out);
void cudnn_run(Device *dev, const CudnnPlan *plan, ConvOp op, const void *x, const void *w, const void *y,
               const Dest *out, void *workspace);

#ifdef __cplusplus
}
#endif
