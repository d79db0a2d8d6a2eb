// The table of anchors of one canvas, made once on the host when a network is built.
// Ren et al., "Faster R-CNN", 2015; per level as Lin et al., "Feature Pyramid Networks", 2017.
#pragma once
#include "nn/ops.h"

// torchvision: rounded, stride 0. detectron2: exact, strides 4 8 16 32 64. maskrcnn-benchmark: legacy, the same
// strides.
typedef struct AnchorShapes {
  int sizes;                                // per level
  float size[MAX_LEVELS][MAX_CELL_ANCHORS]; // √area, canvas pixels
  int ratios;                               // of every level; sizes · ratios ≤ MAX_CELL_ANCHORS
  float ratio[MAX_CELL_ANCHORS];            // height / width
  AnchorType type;
  int stride[MAX_LEVELS]; // canvas pixels; 0 = canvas size / grid size, rounded down
} AnchorShapes;

// Fills the table for feature maps of grid_h[l] × grid_w[l] under a canvas of canvas_h × canvas_w pixels. The anchors
// of a cell go through the ratios, for each through the sizes, as torchvision's AnchorGenerator has them.
void anchors_init(Anchors *a, const AnchorShapes *shapes, int levels, const int grid_h[], const int grid_w[],
                  int canvas_h, int canvas_w);
