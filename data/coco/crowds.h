// Detects crowds that are really objects. Some tools, including CVAT, mark every mask drawn with a brush as a crowd.
#pragma once
#include "data/coco/coco.h"

extern const char *const crowd_choices[]; // "object", "ignore": CrowdChoice
typedef enum CrowdChoice { CROWD_OBJECT, CROWD_IGNORE } CrowdChoice;

// Turns the crowds of a category into objects if they are more than a tenth of its annotations and most of their masks
// are one connected region (an object that is partly hidden may be in two pieces): clears `crowd` and sets `was_crowd`.
// COCO never has that many: at most one per category and image, next to at least ten objects of it. `train`: for a
// validation set, the training set after this decision, which is used for the same categories; NULL: none. Returns how
// many crowds became objects.
int crowds_become_objects(Coco *c, const Coco *train);
// Whether a mask is connected, except for a fiftieth of its pixels; pixels also connect at their corners. False if
// empty.
bool mask_is_connected(const Rle *mask);
