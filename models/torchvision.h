// Weights that torchvision made: its names, older and newer, and the configuration that their shapes tell.
#pragma once
#include "models/config.h"
#include "weights/checkpoint.h"

typedef enum WeightsKind {
  WEIGHTS_UNKNOWN,
  WEIGHTS_DETECTOR,  // a state dict of Mask R-CNN
  WEIGHTS_BACKBONE,  // of a ResNet, whose classifier was dropped or is not there
  WEIGHTS_CLASSIFIER // of a classification network; a ResNet's can begin a backbone, too
} WeightsKind;

// Gives the tensors the names of ours, which are those of torchvision 0.26. Older names and DataParallel's are
// replaced; a ResNet for classification without its fc.weight becomes a backbone. `path` is for messages.
bool torchvision_rename(Checkpoint *c, const char *path, Err *err);
WeightsKind torchvision_kind(const Checkpoint *c);
// Depth, widths, norm and classes as the tensors have them, all else as torchvision's defaults. The eps of frozen batch
// norm, which no tensor tells, is that of the published weights. A backbone has no classes: config->classes = 0.
bool torchvision_config(const Checkpoint *c, ModelConfig *config, Err *err);
// Of COCO's categories by label, 1 … 90; NULL for any other number of classes.
const char *torchvision_category(int classes, int label);
