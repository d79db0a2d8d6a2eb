// Networks that are one line of convolutions with ReLU, maxima and fully connected layers: what AlexNet, OverFeat and
// VGG share.
#pragma once
#include "classification/nets/classifier.h"

// A convolution, or, k = 0, maxima over windows.
typedef struct PlainStage {
  int k, size, stride, pad;
} PlainStage;

typedef struct Plain {
  Network *n;
  Init conv, conv_bias, dense, dense_bias;
} Plain;

// torchvision's `features`, a Sequential, in which a convolution is followed by a module for its ReLU.
Value *plain_features(const Plain *p, const PlainStage *stages, int count, Value *x);
// Adaptive means of size × size bins, which are the pixels where there are as many.
Value *plain_bins(const Plain *p, Value *x, int size);
// A fully connected layer with k outputs and dropout, at a place of torchvision's `classifier`, a Sequential.
Value *plain_dense(const Plain *p, Value *x, int index, int k, bool relu);
Value *plain_dropout(const Plain *p, Value *x, int index);
