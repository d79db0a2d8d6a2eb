// The object type of detection: boxes on the canvas, labels from 1, masks as bits or polygons.
#pragma once
#include "data/batches/dataset.h"

extern const ObjectType objects_with_masks;
