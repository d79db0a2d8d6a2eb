// Feature pyramid: Lin et al., "Feature pyramid networks for object detection", 2017.
#pragma once
#include "models/config.h"
#include "nn/graph.h"

// From the backbone's stages c[0 … 3] (strides 4 … 32) to p[0 … 4]: P2 … P5 and P6, a subsampling of P5.
void fpn_build(Graph *g, const ModelConfig *config, const char *prefix, Value *c[4], Value *p[MAX_LEVELS]);
