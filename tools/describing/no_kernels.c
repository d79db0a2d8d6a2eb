// Replaces the kernels in programs that describe a GPU and compute nothing on it: lab/machine.c, tools/doctor.c.
#include "base/error.h"
#include "nn/op_list.h"
#include "nn/ops.h"
#include "nn/rung.h"

static void no_kernel(void) { CHECK(!"a program without kernels computes nothing"); }

#define ROW(op) .op = (__typeof__(ops_cuda.op))no_kernel,
const Ops ops_cuda = {.name = "none", EACH_OP(ROW)};

extern const Rung *const conv_rungs[];
const Rung *const conv_rungs[] = {0};
