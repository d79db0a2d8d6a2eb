// The object type of classification: one object an image, without a box, whose label is the image's class, from 0.
#pragma once
#include "data/batches/dataset.h"

extern const ObjectType objects_of_classes;
