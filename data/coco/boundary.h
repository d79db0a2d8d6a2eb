// The boundary of a mask, for boundary IoU.
// Source: Cheng, Girshick, Dollár, Berg and Kirillov, "Boundary IoU: Improving Object-Centric Image Segmentation
// Evaluation", CVPR 2021.
#pragma once
#include "data/coco/rle.h"

// How far a boundary reaches into a mask, in pixels: 2 % of the diagonal of its image, halves to even, at least 1.
int boundary_distance(int h, int w);
// The pixels of a mask that are `distance` or less from one outside of it, along the larger of the two axes: the mask
// without its erosion by 3 × 3 pixels, `distance` times. What lies beyond the image is outside. Caller frees.
Rle rle_boundary(const Rle *mask, int distance);
