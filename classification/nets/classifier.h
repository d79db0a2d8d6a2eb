// Classifiers: networks that predict the class of an image of one size, and what their files share. Parameters have
// torchvision's names, where torchvision has the network.
#pragma once
#include "models/model.h"
#include "nn/layers.h"
#include "weights/checkpoint.h"

// In the order of Network.losses and Network.counter; further losses belong to single models, and are 0 without that
// head. The loss is softmax cross-entropy; hits are counted over a step's images: the true class is first, or among the
// five largest logits (or all, if there are fewer).
enum { LOSS_CLASS };
enum { COUNT_TOP1, COUNT_TOP5 };

extern const struct Task task_classification;      // classification/class_task.c
extern const struct Outputs outputs_probabilities; // classification/class_outputs.c
extern const struct ResultType result_classes;     // classification/class_result_type.c
extern const struct InferTask infer_classes;       // classification/infer_classes.c
extern const struct Source source_of_classes;      // classification/data/class_source.c
// Fields that the rows of all classifiers share.
#define CLASSIFIER_ROW                                                                                                 \
  .task = &task_classification, .outputs = &outputs_probabilities, .result_type = &result_classes,                     \
  .infer = &infer_classes, .source = &source_of_classes, .square = true,                                               \
  .inputs = BATCH_BIT(BATCH_INFO) | BATCH_BIT(BATCH_BYTES), .targets = BATCH_BIT(BATCH_LABEL)
// torchvision's references/classification, with a cosine schedule; .rate is set separately.
#define CLASSIFIER_LEARNING                                                                                            \
  .batch = 128, .epochs = 90, .eval_epochs = 1, .rate_images = 256, .decay = DECAY_COSINE, .warmup_epochs = 5,         \
  .warmup_factor = 0.01
#define CLASSIFIER_LOSS                                                                                                \
  { "loss_class", "class", 0 }
#define CLASSIFIER_COUNTERS                                                                                            \
  { [COUNT_TOP1] = "top1", [COUNT_TOP5] = "top5" }

// For Published of a row: whether a file has all three tensors: a first convolution with windows of `taps`, a last one,
// and the head.
bool classifier_held(const Checkpoint *c, const char *first, int taps, const char *last, const char *head);
// The configuration of a variant, with as many classes as the head has rows.
bool classifier_config(const Checkpoint *c, const char *variant, const char *head, ModelConfig *config, Err *err);

// The configuration that classifiers start from: an image of size × size, batch norm, all layers trained.
void classifier_defaults(ModelConfig *c, int size);

// [images, canvas_h, canvas_w, 3], or 1 channel if the configuration is grey.
Value *classifier_image(Network *n);
// An auxiliary head's loss, in training, at its index in Network.losses.
void classifier_auxiliary(Network *n, const char *name, Value *logits, float weight, int index);
// Begins the losses: sets all to 0, for heads that the network does not have.
void classifier_clear(Network *n);
// Computes the loss and the hits from logits [images, 1, 1, classes]; at inference the probabilities.
void classifier_finish(Network *n, Value *logits);
