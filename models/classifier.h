// Classifiers: networks that tell the class of an image of one size, and what their files in models/ share. Names of
// parameters are torchvision's, where torchvision has the net.
#pragma once
#include "models/model.h"
#include "nn/layers.h"

extern const Model model_resnet; // models/resnet_classifier.c: He et al., "Deep residual learning …", 2015

// In the order of Network.losses and Network.counter. The loss is softmax cross-entropy; hits are of a step's images,
// and of the five classes of largest logits, or of all where there are fewer.
enum { LOSS_CLASS };
enum { COUNT_TOP1, COUNT_TOP5 };
#define CLASSIFIER_INPUTS (BATCH_BIT(BATCH_INFO) | BATCH_BIT(BATCH_BYTES) | BATCH_BIT(BATCH_AFFINE))
#define CLASSIFIER_TARGETS BATCH_BIT(BATCH_LABEL)
#define CLASSIFIER_LOSS                                                                                                \
  { "loss_class", "class", 0 }
#define CLASSIFIER_COUNTERS                                                                                            \
  { [COUNT_TOP1] = "top1", [COUNT_TOP5] = "top5" }

// A configuration of torchvision's defaults as classifiers start from it: an image of size × size, batch norm, all
// layers trained.
void classifier_defaults(ModelConfig *c, int size);

// [images, canvas_h, canvas_w, 3], or 1 where the configuration is grey.
Value *classifier_image(Network *n);
// Fully connected over all of x: [images, 1, 1, k].
typedef struct Dense {
  int k;
  bool relu;
  Init init, bias_init;
} Dense;
Value *classifier_dense(Graph *g, const char *name, Value *x, const Dense *d);
// From logits [images, 1, 1, classes] the loss and the hits; at inference the probabilities.
void classifier_finish(Network *n, Value *logits);
