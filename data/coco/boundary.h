// The boundary of a mask, for boundary IoU.
// Source: Cheng, Girshick, Dollár, Berg and Kirillov, "Boundary IoU: Improving Object-Centric Image Segmentation
// Evaluation", CVPR 2021.
#pragma once
#include "data/coco/rle.h"

// The width of a boundary in pixels: 2 % of the image's diagonal, rounded half to even, at least 1.
int boundary_distance(int h, int w);
// The pixels of a mask within `distance` of a pixel outside it, along the larger of the two axes: the mask minus its
// erosion by 3 × 3 pixels, `distance` times. Pixels beyond the image are outside. Caller frees.
Rle rle_boundary(const Rle *mask, int distance);
