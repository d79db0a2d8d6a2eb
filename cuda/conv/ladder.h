// The ladder: several implementations of the convolution ops, from the shortest to read to the fastest. Each file
// 0N_*.cu exports one; the ops (conv.cu) hand every problem to the rung that was asked for, or to the fastest that
// supports it. A rung gets problems checked and simplified by conv.cu: a fully connected layer comes as a 1 × 1
// convolution.
#pragma once
#include "nn/rung.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Rung rung_naive, rung_im2col, rung_wmma, rung_mma, rung_wgmma, rung_cudnn;
extern const Rung *const conv_rungs[]; // all of them, from the bottom; NULL at the end

// The fastest rung of ours, cuDNN left out, that supports the problem.
const Rung *conv_own_rung(Device *dev, ConvOp op, const Conv *conv, const Tensor *in, const Tensor *w);

#ifdef __cplusplus
}
#endif
