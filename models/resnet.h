// ResNet: He et al., "Deep residual learning for image recognition", 2015; torchvision's variant and names.
#pragma once
#include "models/config.h"
#include "nn/graph.h"

// Appends stem and stages; out[i] is the output of layer<i+1>, stride 4 << i. Names start with prefix
// ("backbone.body.", or "" for the whole net).
void resnet_build(Graph *g, const ModelConfig *c, const char *prefix, Value *image, Value *out[4]);
