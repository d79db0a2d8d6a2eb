// The files in which torchvision publishes weights, for those who fetch one themselves.
#pragma once
#include "models/model.h"

// "maskrcnn_resnet50_fpn_coco-bf2d0c1e.pth (178,090,079 bytes)": the file whose weights a detector can start from, its
// own or its backbone's; NULL: there is none. The name ends in the first digits of the file's SHA-256.
const char *torchvision_file(const ModelConfig *c);
