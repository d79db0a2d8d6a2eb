// The ladder: several implementations of the convolution ops, from the shortest to read to the fastest. Each file
// 0N_*.cu exports one; the ops (conv.cu) hand every problem to the rung that was asked for, or to the fastest that
// supports it. A rung gets problems checked and simplified by conv.cu: a fully connected layer comes as a 1 × 1
// convolution.
#pragma once
#include "nn/rung.h"

#ifdef __cplusplus
extern "C" {
#endif

// All of them, from the bottom: a new rung is a file that exports rung_<name>, and its name here.
#define EACH_RUNG(X) X(naive) X(im2col) X(wmma) X(mma) X(wgmma) X(cudnn)

#define DECLARE_RUNG(name) extern const Rung rung_##name;
EACH_RUNG(DECLARE_RUNG)
extern const Rung *const conv_rungs[]; // in this order; NULL at the end

// The highest rung of ours, cuDNN left out, that supports the problem: the fastest.
const Rung *conv_own_rung(Device *dev, ConvOp op, const Conv *conv, const Tensor *in, const Tensor *w);

#ifdef __cplusplus
}
#endif
