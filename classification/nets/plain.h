// Sequential networks of convolutions with ReLU, max pooling and fully connected layers: shared by AlexNet, OverFeat
// and VGG.
#pragma once
#include "classification/nets/classifier.h"

// A convolution, or, if k = 0, max pooling.
typedef struct PlainStage {
  int k, size, stride, pad;
} PlainStage;

typedef struct Plain {
  Network *n;
  Init conv, conv_bias, dense, dense_bias;
} Plain;

// torchvision's `features`, a Sequential, in which a convolution is followed by a module for its ReLU.
Value *plain_features(const Plain *p, const PlainStage *stages, int count, Value *x);
// Adaptive average pooling to size × size; copies the pixels if the input already has that size.
Value *plain_bins(const Plain *p, Value *x, int size);
// A fully connected layer with k outputs and dropout, at an index of torchvision's `classifier`, a Sequential.
Value *plain_dense(const Plain *p, Value *x, int index, int k, bool relu);
Value *plain_dropout(const Plain *p, Value *x, int index);
