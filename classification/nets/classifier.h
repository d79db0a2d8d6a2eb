// Classifiers: networks that tell the class of an image of one size, and what their files in models/ share. Names of
// parameters are torchvision's, where torchvision has the net.
#pragma once
#include "models/model.h"
#include "nn/layers.h"

extern const Model model_resnet;    // He et al., "Deep residual learning for image recognition", 2015
extern const Model model_alexnet;   // Krizhevsky, "One weird trick for parallelizing convolutional networks", 2014
extern const Model model_overfeat;  // Sermanet et al., "OverFeat", 2013: the fast one
extern const Model model_vgg;       // Simonyan, Zisserman, "Very deep convolutional networks …", 2014
extern const Model model_googlenet; // Szegedy et al., "Going deeper with convolutions", 2014
extern const Model model_vgg28;     // a VGG for images of 28 × 28 pixels, with batch norm

// In the order of Network.losses and Network.counter; further losses are a model's own, and 0 where it has no head for
// them. The loss is softmax cross-entropy; hits are of a step's images,
// and of the five classes of largest logits, or of all where there are fewer.
enum { LOSS_CLASS };
enum { COUNT_TOP1, COUNT_TOP5 };

extern const struct Task task_classification;      // classification/class_task.c
extern const struct Outputs outputs_probabilities; // classification/class_outputs.c
// What the rows of all classifiers have in common.
#define CLASSIFIER_ROW                                                                                                 \
  .task = &task_classification, .outputs = &outputs_probabilities,                                                     \
  .inputs = BATCH_BIT(BATCH_INFO) | BATCH_BIT(BATCH_BYTES) | BATCH_BIT(BATCH_AFFINE),                                  \
  .targets = BATCH_BIT(BATCH_LABEL)
#define CLASSIFIER_LOSS                                                                                                \
  { "loss_class", "class", 0 }
#define CLASSIFIER_COUNTERS                                                                                            \
  { [COUNT_TOP1] = "top1", [COUNT_TOP5] = "top5" }

// A configuration of torchvision's defaults as classifiers start from it: an image of size × size, batch norm, all
// layers trained.
void classifier_defaults(ModelConfig *c, int size);

// [images, canvas_h, canvas_w, 3], or 1 where the configuration is grey.
Value *classifier_image(Network *n);
// An auxiliary head's loss, in training, at its place in Network.losses.
void classifier_auxiliary(Network *n, const char *name, Value *logits, float weight, int place);
// Begins the losses: sets all to 0, where a network has more places than heads.
void classifier_clear(Network *n);
// From logits [images, 1, 1, classes] the loss and the hits; at inference the probabilities.
void classifier_finish(Network *n, Value *logits);
