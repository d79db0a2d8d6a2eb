// The objects of COCO's images: boxes on the canvas, labels from 1 on, masks as bits or polygons.
#pragma once
#include "data/batches/dataset.h"

extern const ObjectType objects_with_masks;
