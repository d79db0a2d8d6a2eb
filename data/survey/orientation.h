// In which directions the objects of a data set lie.
#pragma once
#include "data/batches/dataset.h"

typedef struct Orientation {
  int objects; // long ones, of which the direction is known
  // The length of the mean of exp(4iθ) over their directions θ: near 0 where all are alike, as under a microscope or
  // seen from above; 1 where all lie along the image's sides, along which what stands or lies on the ground does.
  double aligned;
} Orientation;

// Of the objects with masks of at least 100 pixels, a length of at least 1.2 times the width, and a box that does not
// touch the image's edges, which cut objects along themselves.
Orientation orientation_of(const Dataset *d);

// The principal axis of a mask in image coordinates, x to the right and y down.
typedef struct Axis {
  double area, angle; // pixels; radians, of the longer side
  double ratio;       // length by width, of the ellipse with these second moments; infinite for a line
} Axis;
Axis mask_axis(const Coco *c, const CocoAnn *a); // area 0: there is no mask
