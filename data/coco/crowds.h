// Crowds that are objects. Some tools, CVAT among them, mark every mask that was drawn with a brush as a crowd.
#pragma once
#include "data/coco/coco.h"

extern const char *const crowd_choices[]; // "object", "ignore": CrowdChoice
typedef enum CrowdChoice { CROWD_OBJECT, CROWD_IGNORE } CrowdChoice;

// Takes the crowds of a category as objects where they are more than a tenth of its annotations and each covers one
// connected thing: `crowd` goes, `was_crowd` says so. COCO's are never so many: an image has one of a category, beside
// at least ten objects of it. Returns how many crowds became objects.
int crowds_become_objects(Coco *c);
// Whether a mask is in one piece, but for a fiftieth of its pixels; pixels touch at their corners, too. False if empty.
bool mask_is_connected(const Rle *mask);
