// Weights of torchvision's classification networks: which network it is, by the tensors that it has and their shapes.
#pragma once
#include "base/error.h"
#include "models/config.h"
#include "weights/checkpoint.h"

// Whether the file holds a classification network with its head, under torchvision's names, ours or theirs.
bool torchvision_classifies(const Checkpoint *c);
// Whether it is a ResNet, which can be a detector's backbone.
bool torchvision_has_resnet(const Checkpoint *c);
// Its configuration: variant, widths and classes as the tensors have them, all else as the variant's default.
// GoogLeNet's published weights want images in ±1 (torchvision's transform_input), which no tensor tells.
bool torchvision_classifier_config(const Checkpoint *c, ModelConfig *config, Err *err);
// The number of blocks or layers whose names a format with %d makes, from 0 on without a gap.
int torchvision_count(const Checkpoint *c, const char *format);
// Dimension i of a tensor, 0 where it has none or one that no model has.
int torchvision_dim(const Checkpoint *c, const char *name, int i);
// The depth of the ResNet whose names begin with `prefix`, by how many blocks its third stage has, of two or three
// convolutions each; 0 = none that we have.
int torchvision_depth(const Checkpoint *c, const char *prefix);
