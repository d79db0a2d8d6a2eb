// Finds objects that are annotated twice in an image, under whatever ids.
#pragma once
#include "data/coco/coco.h"

typedef struct TwiceObject {
  int ann;      // index into coco.anns
  int category; // the annotation's category
  float box[4]; // x1 y1 x2 y2
} TwiceObject;

// Marks each of an image's objects, given in file order, that has the same category as an earlier one and nearly the
// same box and mask: an IoU of at least 0.9 or, without masks, an identical box. Sorts the objects.
void twice_mark(const Coco *c, const CocoImage *im, TwiceObject *object, int n, bool *is_copy); // [coco.num_anns]
