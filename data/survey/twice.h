// Objects that are annotated twice in an image, under whatever ids.
#pragma once
#include "data/coco/coco.h"

typedef struct TwiceObject {
  int ann;      // index into coco.anns
  int category; // of it
  float box[4]; // x1 y1 x2 y2
} TwiceObject;

// Of an image's objects, in file order, marks each that one before it is of the same category as, and of nearly the
// same box and mask: of an IoU of at least 0.9, without masks of the very same box. Sorts them.
void twice_mark(const Coco *c, const CocoImage *im, TwiceObject *object, int n, bool *is_copy); // [coco.num_anns]
