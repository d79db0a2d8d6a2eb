// The objects of a set of classes: one an image, without a box, whose label is the image's class from 0 on.
#pragma once
#include "data/batches/dataset.h"

extern const ObjectType objects_of_classes;
