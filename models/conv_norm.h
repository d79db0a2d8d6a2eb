// A convolution without bias, followed by the norm that ModelConfig.norm selects: y = relu?(norm(w · x) + addend?).
#pragma once
#include "models/config.h"
#include "nn/layers.h"

typedef struct ConvNorm {
  const char *conv, *norm; // names
  int k, taps, stride;     // padded by taps / 2
  bool relu, trainable;
  Init init;
  Value *addend;
  const char *addend_norm; // of the addend, still to be done; NULL: it is done, or has none
} ConvNorm;
// Frozen batch norm, and any batch norm at inference, is folded into the convolution; otherwise the norm is a node of
// its own.
bool conv_norm_folds(const Graph *g, const ModelConfig *c);
ConvLayer conv_norm_folded(const ModelConfig *c, const ConvNorm *u); // the convolution with the norm in it
Value *conv_norm(Graph *g, const ModelConfig *c, Value *x, const ConvNorm *u);
// The convolution of a shortcut. Where its norm is best done together with the one that it is added to, that is left to
// conv_norm, as its addend_norm; elsewhere *norm is NULL.
Value *conv_norm_shortcut(Graph *g, const ModelConfig *c, Value *x, const ConvNorm *u, const char **norm);
// The norm that c asks for, trained; at inference batch norm by its running statistics. Not for frozen batch norm.
Value *norm_node(Graph *g, const ModelConfig *c, const char *name, Value *x);
