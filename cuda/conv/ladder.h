// The ladder: several implementations of the convolution ops, from the simplest to the fastest. Each is a file
// NN_NAME.cu that exports rung_NAME; conv.cu dispatches every problem to the requested rung or to the fastest that
// supports it. Problems are checked and simplified first: a fully connected layer arrives as a 1 × 1 convolution.
#pragma once
#include "nn/rung.h"

#ifdef __cplusplus
extern "C" {
#endif

// From the bottom; NULL at the end. Below `naive`, which supports everything, stand those that compute only where they
// are asked for. The Makefile writes the list, by what rungs.sh finds.
extern const Rung *const conv_rungs[];
extern const Rung rung_naive; // the definition, with which others are compared

// The highest rung that supports the problem.
const Rung *conv_fastest_rung(Device *dev, ConvOp op, const Conv *conv, const Tensor *in, const Tensor *w);

#ifdef __cplusplus
}
#endif
