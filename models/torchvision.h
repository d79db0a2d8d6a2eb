// Weights from torchvision: its current and older parameter names, and the configuration inferred from their shapes.
#pragma once
#include "models/model.h"
#include "weights/checkpoint.h"

// Gives the tensors the names of ours, which are those of torchvision 0.26. Older names and DataParallel's are
// replaced; a ResNet for classification without its fc.weight becomes a backbone. `path` is for messages.
bool torchvision_rename(Checkpoint *c, const char *path, Err *err);
// Which model the file holds, with its head; NULL: a mere backbone, or none that is known.
const Model *torchvision_model(const Checkpoint *c);
// Whether it is the former: a ResNet under the names of a detector's, whose classifier was dropped or is not there.
bool torchvision_is_backbone(const Checkpoint *c);
// Depth, widths, norm and classes as the tensors have them, all else as torchvision's defaults. A backbone is a
// detector's without classes: config->classes = 0. False for what is neither, and for sizes that we have not.
bool torchvision_config(const Checkpoint *c, ModelConfig *config, Err *err);

// ---- for Published of a model ---------------------------------------------------------------------------------------

// Whether it is a classification ResNet, which can be a detector's backbone, too.
bool torchvision_has_resnet(const Checkpoint *c);
// The number of blocks or layers whose names a format with %d makes, from 0 on without a gap.
int torchvision_count(const Checkpoint *c, const char *format);
// Dimension i of a tensor, 0 where it has none or one that no model has.
int torchvision_dim(const Checkpoint *c, const char *name, int i);
// The depth of the ResNet whose names begin with `prefix`, by how many blocks its third stage has, of two or three
// convolutions each; 0 = none that we have.
int torchvision_depth(const Checkpoint *c, const char *prefix);
